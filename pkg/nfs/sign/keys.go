package sign

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
)

// Limits of a key file.
const (
	// MinKey is the shortest key, in bytes.
	MinKey = 32
	// MaxKeys bounds the keys, since a bad handle is checked against each.
	MaxKeys = 16

	maxFile = 64 << 10
)

// LoadKeys reads a key file; see ParseKeys.
func LoadKeys(path string) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sign: file of keys: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("sign: file of keys: %w", err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("sign: file of keys %s: %w", path, err)
	}
	return keys, nil
}

// ParseKeys reads 1 to MaxKeys keys of at least MinKey bytes, one a line, in base64 with padding
// (RFC 4648 section 4). It ignores empty lines, and the rest of a line after #. Errors name the
// line, and never show a key.
func ParseKeys(text []byte) ([][]byte, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d bytes, want a line for each key", maxFile)
	}
	var keys [][]byte
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line, _, _ = bytes.Cut(line, []byte("#"))
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		key := make([]byte, base64.StdEncoding.DecodedLen(len(line)))
		n, err := base64.StdEncoding.Strict().Decode(key, line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not base64 with padding: %w", number, err)
		}
		if n < MinKey {
			return nil, fmt.Errorf("line %d: the key has %d bytes, at least %d are needed", number, n, MinKey)
		}
		if len(keys) == MaxKeys {
			return nil, fmt.Errorf("line %d: more than %d keys", number, MaxKeys)
		}
		keys = append(keys, key[:n])
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key in %d lines", number)
	}
	return keys, nil
}
