// Package docs has the pages that programs show.
package docs

import _ "embed"

// Troubleshooting is the page troubleshooting.md. It has a heading of the third level for each
// reason of a condition.
//
//go:embed troubleshooting.md
var Troubleshooting string
