package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
)

// adminKeyFile is where the first admin key is left in the data directory when
// no terminal shows it.
const adminKeyFile = "admin-key"

// ensureAdminKey makes a first admin key where there is none, the one key that
// nobody made by hand. It returns what tells an operator of it, once the broker
// serves. A person at a terminal is shown it there. Otherwise out is read by
// whatever gathers logs, which must not get it: then it is in a file that only
// this broker's user may read, and out says where.
func (a *App) ensureAdminKey(ctx context.Context, keys *auth.Keys, out io.Writer) (announce func(), err error) {
	path := filepath.Join(a.config.Data, adminKeyFile)
	var shown auth.Secret
	keep := func(secret auth.Secret) error { shown = secret; return nil }
	if !isTerminal(out) {
		keep = func(secret auth.Secret) error { return writeSecret(path, secret) }
	}
	created, err := keys.EnsureAdminKey(ctx, keep)
	switch {
	case err != nil:
		return nil, err
	case !created:
		return func() {}, nil
	case !isTerminal(out):
		return func() {
			a.log.Info("a first admin key was made; it is in a file and otherwise kept only as a hash: move it to where secrets are kept", "file", path)
		}, nil
	}
	return func() {
		fmt.Fprintf(out, "\nA first admin key was made. It is shown this once and kept only as a hash:\n\n  %s\n\n"+
			"Make keys for callers with it or with \"budgetd key create\", which needs no key on this machine.\n\n", shown.Reveal())
	}, nil
}

// writeSecret writes a file that only its owner may read, whatever was there.
func writeSecret(path string, secret auth.Secret) error {
	temporary := path + ".new"
	err := os.Remove(temporary)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		var file *os.File
		if file, err = os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_, err = fmt.Fprintln(file, secret.Reveal())
			err = errors.Join(err, file.Sync(), file.Close())
		}
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("data: keep the first admin key: %w", err)
	}
	return nil
}
