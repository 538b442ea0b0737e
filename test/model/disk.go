package model

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/spool"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// disk is where a node's spool is. It outlives the node, and is used by one
// history after the other, as making the files takes longer than a history.
type disk struct {
	path    string
	next    *ledgerOf
	drained func([]ledger.Drained)
	spool   *spool.Spool
}

// ledgerOf is the ledger of the history under way.
type ledgerOf struct{ ledger.Ledger }

// clear makes the spool ready for another history.
func (d *disk) clear() error {
	if d.spool != nil && d.spool.Waiting() == 0 && !d.spool.Away() {
		return nil
	}
	err := d.close()
	files, globErr := filepath.Glob(d.path + "*")
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return errors.Join(err, globErr, d.reopen())
}

// reopen closes the spool, as the end of its node would, and opens what it left.
func (d *disk) reopen() error {
	err := d.close()
	if d.next == nil {
		d.next = &ledgerOf{}
	}
	var openErr error
	d.spool, openErr = spool.Open(context.Background(), spool.Config{
		Next: d.next, Path: d.path, Logger: quiet,
		Drained: func(drained []ledger.Drained) { d.drained(drained) },
	})
	return errors.Join(err, openErr)
}

func (d *disk) close() error {
	if d.spool == nil {
		return nil
	}
	err := d.spool.Close()
	d.spool = nil
	return err
}
