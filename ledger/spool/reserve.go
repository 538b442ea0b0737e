package spool

import (
	"errors"
	"fmt"
	"os"
)

// reserveBytes is what removing a batch may need in the write-ahead log, with
// the log's move into the file.
const reserveBytes = 4 << 20

// reserve is a file that takes room on the disk, so that a spool that has filled
// it can be drained: even to remove something SQLite first writes.
type reserve struct{ path string }

// take makes the file, unless it is there in full.
func (r reserve) take() (err error) {
	if info, err := os.Stat(r.path); err == nil && info.Size() == reserveBytes {
		return nil
	}
	file, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("take the spool's reserve: %w", err)
	}
	_, err = file.Write(make([]byte, reserveBytes))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("take the spool's reserve of %d bytes: %w", reserveBytes, errors.Join(err, os.Remove(r.path)))
	}
	return nil
}

// release removes the file, and says whether that has made room.
func (r reserve) release() bool { return os.Remove(r.path) == nil }
