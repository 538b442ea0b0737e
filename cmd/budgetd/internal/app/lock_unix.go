//go:build unix

package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir makes sure that no other broker uses the directory: with two, each
// would keep counters of its own and grant every limit in full. The lock goes
// with the process, however it ends.
func lockDir(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, "broker.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data: lock the directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data: another broker uses %s; stop it, or give this one a directory of its own", dir)
		}
		return nil, fmt.Errorf("data: lock %s: %w", path, err)
	}
	return file.Close, nil
}
