//go:build !unix

package app

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockDir makes sure that no other broker uses the directory: with two, each
// would keep counters of its own and grant every limit in full. Where a file
// can't be locked it is made exclusively, and must be removed by hand after a
// crash.
func lockDir(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, "broker.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data: another broker uses %s, or one crashed there; stop it, or remove %s if none runs: %w", dir, path, err)
	}
	return func() error {
		return firstError(file.Close(), os.Remove(path))
	}, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
