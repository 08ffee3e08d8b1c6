package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// infoResult is the result of info, and its JSON.
type infoResult struct {
	Connection pingResult `json:"connection"`
	// NFS and Mount are the first and last version served; empty if unknown.
	NFS   []uint32 `json:"nfs_versions,omitempty"`
	Mount []uint32 `json:"mount_versions,omitempty"`
	// Exports are the directories that MOUNT lists, with the groups that may mount them.
	Exports []exportResult `json:"exports,omitempty"`
	Export  string         `json:"export"`
	Handle  string         `json:"handle"` // of the path, in hexadecimal digits
	Access  []string       `json:"access"` // of this user, to the path

	FileSystem fileSystem `json:"file_system"`
	Limits     limits     `json:"limits"`
	Properties properties `json:"properties"`
}

type exportResult struct {
	Dir    string   `json:"dir"`
	Groups []string `json:"groups,omitempty"`
}

// limits are numbers of FSINFO and PATHCONF, in bytes.
type limits struct {
	Read             transferLimits `json:"read"`
	Write            transferLimits `json:"write"`
	PreferredReaddir uint32         `json:"preferred_readdir"`
	FileSize         uint64         `json:"file_size"`
	Name             uint32         `json:"name"`
	Links            uint32         `json:"links"`
	TimeGranularity  time.Duration  `json:"time_granularity_ns"`
}

type transferLimits struct {
	Max       uint32 `json:"max"`
	Preferred uint32 `json:"preferred"`
	Multiple  uint32 `json:"multiple"`
}

// properties are the facts of FSINFO and PATHCONF.
type properties struct {
	HardLinks       bool `json:"hard_links"`
	SymbolicLinks   bool `json:"symbolic_links"`
	Homogeneous     bool `json:"homogeneous"`
	CanSetTime      bool `json:"can_set_time"`
	RejectsLong     bool `json:"rejects_long_names"`
	OnlyRootChowns  bool `json:"only_root_changes_owners"`
	CaseInsensitive bool `json:"case_insensitive"`
	CasePreserving  bool `json:"case_preserving"`
}

func (a *app) infoCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "info URL",
		Short: "Print all that a server reports: versions, exports, limits and properties",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.mounted(c.Context(), args[0], "look at", false, func(ctx context.Context, s *session) error {
				r, err := s.info(ctx)
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printJSON(r)
				}
				r.print(a)
				return nil
			})
		},
	}
	a.connectionFlags(c)
	c.ValidArgsFunction = a.completeArgs(false)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (s *session) info(ctx context.Context) (r infoResult, err error) {
	o, err := s.walk(ctx, s.target.path, true)
	if err != nil {
		return r, err
	}
	began := time.Now()
	short, cancel := s.patience(ctx)
	defer cancel()
	if err := s.Null(short); err != nil {
		return r, err
	}
	r.Connection = s.negotiated()
	r.Connection.RoundTripUS = float64(time.Since(began).Nanoseconds()) / 1e3
	r.Export, r.Handle = s.target.export, fmt.Sprintf("%x", []byte(o.Handle))
	if r.NFS, err = s.programVersions(short, s.requester(), nfs3.Program); err != nil {
		return r, err
	}
	if r.Mount, err = s.programVersions(short, s.mountRequester(), nfs3.MountProgram); err != nil {
		return r, err
	}
	if r.FileSystem, err = s.fileSystem(ctx); err != nil {
		return r, err
	}
	info, err := s.FSInfo(short, o.Handle)
	if err != nil {
		return r, err
	}
	conf, err := s.PathConf(short, o.Handle)
	if err != nil {
		return r, err
	}
	r.Limits = limits{
		Read:             transferLimits{info.RTMax, info.RTPref, info.RTMult},
		Write:            transferLimits{info.WTMax, info.WTPref, info.WTMult},
		PreferredReaddir: info.DTPref, FileSize: info.MaxFileSize, Name: conf.NameMax, Links: conf.LinkMax,
		TimeGranularity: time.Duration(info.TimeDelta.Sec)*time.Second + time.Duration(info.TimeDelta.Nsec),
	}
	has := func(bit uint32) bool { return info.Properties&bit != 0 }
	r.Properties = properties{
		has(nfs3.FSFLink), has(nfs3.FSFSymlink), has(nfs3.FSFHomogeneous), has(nfs3.FSFCanSetTime),
		conf.NoTrunc, conf.ChownRestricted, conf.CaseInsensitive, conf.CasePreserving,
	}
	if r.Access, err = s.access(short, o.Handle); err != nil {
		return r, err
	}
	r.Exports, err = s.exports(short)
	return r, err
}

func (s *session) access(ctx context.Context, file nfs3.Handle) (names []string, err error) {
	names = []string{}
	all := []struct {
		bit  uint32
		name string
	}{
		{nfs3.AccessRead, "read"}, {nfs3.AccessLookup, "lookup"}, {nfs3.AccessModify, "modify"},
		{nfs3.AccessExtend, "extend"}, {nfs3.AccessDelete, "delete"}, {nfs3.AccessExecute, "execute"},
	}
	var bits uint32
	for _, x := range all {
		bits |= x.bit
	}
	granted, err := s.Access(ctx, file, bits)
	for _, x := range all {
		if granted&x.bit != 0 {
			names = append(names, x.name)
		}
	}
	return names, err
}

// mountRequester carries calls of MOUNT.
func (s *session) mountRequester() oncrpc.Requester {
	if s.mnt != nil {
		return s.mnt
	}
	return s.requester()
}

// programVersions returns the first and last version that the server has of a program, which it
// reports after a call of version 0. It returns nil if the server reports something else.
func (s *session) programVersions(ctx context.Context, rq oncrpc.Requester, program uint32) ([]uint32, error) {
	const null, mismatch = 0, 8
	r, _, err := oncrpc.NewRequest(s.pool, program, 0, null, s.cred, oncrpc.MinCallLen+len(s.cred.Body)+4)
	if err != nil {
		return nil, err
	}
	defer r.Free()
	if err := r.Seal(); err != nil {
		return nil, err
	}
	r.Plan.MaxReply = oncrpc.MinReplyLen + mismatch
	err = oncrpc.Do(ctx, rq, r)
	if err == nil {
		_, err = r.Results()
	}
	var status *oncrpc.StatusError
	switch {
	case errors.As(err, &status) && !status.Status.Denied && status.Status.Accept == oncrpc.ProgMismatch:
		return []uint32{status.Status.Low, status.Status.High}, nil
	case errors.As(err, &status):
		return nil, nil
	}
	return nil, err
}

// exports returns the list of MOUNT, nil if the server does not give it.
func (s *session) exports(ctx context.Context) ([]exportResult, error) {
	const most = 64 << 10
	r, _, err := oncrpc.NewRequest(s.pool, nfs3.MountProgram, nfs3.MountVersion, nfs3.MountProcExport, s.cred, oncrpc.MinCallLen+len(s.cred.Body)+4)
	if err != nil {
		return nil, err
	}
	defer r.Free()
	if err := r.Seal(); err != nil {
		return nil, err
	}
	r.Plan.MaxReply = oncrpc.MinReplyLen + most
	if err := oncrpc.Do(ctx, s.mountRequester(), r); err != nil {
		return nil, err
	}
	d, err := r.Results()
	var status *oncrpc.StatusError
	if errors.As(err, &status) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var res nfs3.ExportRes
	res.Decode(d)
	var list []exportResult
	for _, x := range res.Exports {
		e := exportResult{Dir: string(x.Dir)}
		for _, g := range x.Groups {
			e.Groups = append(e.Groups, string(g))
		}
		list = append(list, e)
	}
	return list, d.Err()
}

func (r *infoResult) print(a *app) {
	r.Connection.print(a)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.Out, "  %-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	versions := func(name string, v []uint32) {
		switch {
		case len(v) == 0:
			line(name, "unknown")
		case v[0] == v[1]:
			line(name, "version %d", v[0])
		default:
			line(name, "versions %d to %d", v[0], v[1])
		}
	}
	versions("NFS", r.NFS)
	versions("MOUNT", r.Mount)
	for _, e := range r.Exports {
		groups := "everybody"
		if len(e.Groups) > 0 {
			groups = strings.Join(e.Groups, ", ")
		}
		line("export", "%s to %s", printable(e.Dir), printable(groups))
	}
	line("handle", "%s", r.Handle)
	line("access", "%s", strings.Join(r.Access, ", "))
	f := &r.FileSystem
	line("space", "%s of %s available, %d of %d files", byteSize(int64(f.AvailableBytes)), byteSize(int64(f.Bytes)), f.AvailableFiles, f.Files)
	l := &r.Limits
	transfers := func(name string, t transferLimits) {
		line(name, "up to %s, preferably %s, in multiples of %s", byteSize(int64(t.Max)), byteSize(int64(t.Preferred)), byteSize(int64(t.Multiple)))
	}
	transfers("READ", l.Read)
	transfers("WRITE", l.Write)
	line("READDIR", "preferably %s", byteSize(int64(l.PreferredReaddir)))
	line("largest file", "%s", byteSize(int64(min(l.FileSize, math.MaxInt64))))
	line("names", "of up to %d bytes", l.Name)
	line("links", "up to %d of a file", l.Links)
	line("times", "in steps of %v", l.TimeGranularity)
	p := &r.Properties
	for _, x := range []struct {
		name string
		is   bool
	}{
		{"hard links", p.HardLinks}, {"symbolic links", p.SymbolicLinks}, {"the same everywhere", p.Homogeneous}, {"times can be set", p.CanSetTime},
		{"rejects long names", p.RejectsLong}, {"only root chowns", p.OnlyRootChowns}, {"case insensitive", p.CaseInsensitive}, {"case preserving", p.CasePreserving},
	} {
		line(x.name, "%s", map[bool]string{true: "yes", false: "no"}[x.is])
	}
}
