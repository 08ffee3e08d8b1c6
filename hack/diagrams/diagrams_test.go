package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestCurrent compares the files in docs/diagrams with new ones.
func TestCurrent(t *testing.T) {
	files, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../../docs/diagrams", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/diagrams/%s is out of date (%v): run make generate", name, err)
		}
		for d := xml.NewDecoder(bytes.NewReader(want)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}
