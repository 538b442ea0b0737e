package main

import (
	"fmt"
	"io"
)

// maxInputBytes bounds what is read from a file or a pipe: what the broker
// takes in one request unless it is set otherwise.
const maxInputBytes = 8 << 20

func readAll(from io.Reader, name string) (string, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxInputBytes+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxInputBytes {
		return "", fmt.Errorf("%s: has more than %d bytes", name, maxInputBytes)
	}
	return string(text), nil
}
