package images

import (
	"bytes"
	"cmp"
	"net/url"
	"slices"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbomFile is the place of the list of contents, where scanners of images look too.
const sbomFile = "usr/share/doc/sluice/sbom.cdx.json"

// sbom lists the contents of an image or package, by package URLs. The same contents make the same
// bytes.
type sbom struct {
	name, version string
	components    map[string]cyclonedx.Component // by package URL
}

func newSBOM(name, version string) *sbom {
	return &sbom{name: name, version: version, components: map[string]cyclonedx.Component{}}
}

func (s *sbom) add(name, version, purl string) {
	s.components[purl] = cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl,
	}
}

// golang adds a Go module.
func (s *sbom) golang(path, version string) {
	s.add(path, version, "pkg:golang/"+path+"@"+url.QueryEscape(version))
}

// debian adds a Debian package.
func (s *sbom) debian(name, version, arch string) {
	s.add(name, version, "pkg:deb/debian/"+name+"@"+url.QueryEscape(version)+"?arch="+arch)
}

func (s *sbom) encode() ([]byte, error) {
	var list []cyclonedx.Component
	for _, c := range s.components {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	b := cyclonedx.NewBOM()
	b.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: s.name, Version: s.version,
		PackageURL: "pkg:golang/sluice.dev/sluice@" + s.version,
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	b.Components = &list
	var out bytes.Buffer
	e := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	err := e.Encode(b)
	return out.Bytes(), err
}
