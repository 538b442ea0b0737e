package auth

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/budgetd/budgetd/migrations"
)

// What every call pays: a key that is remembered.
func BenchmarkAuthenticate(b *testing.B) {
	db := opener(b, "sqlite", "file:"+filepath.Join(b.TempDir(), "budgetd.db"))()
	if _, err := migrations.Up(b.Context(), db, migrations.SQLite); err != nil {
		b.Fatal(err)
	}
	keys, err := NewKeys(db, KeysConfig{Wait: storeTimeout})
	if err != nil {
		b.Fatal(err)
	}
	defer keys.Close()
	_, secret, err := keys.Create(b.Context(), NewKey{Name: "bench", Role: RoleAdmin, By: "test"})
	if err != nil {
		b.Fatal(err)
	}
	authenticator, err := New(Config{Keys: keys})
	if err != nil {
		b.Fatal(err)
	}
	header := http.Header{"Authorization": {"Bearer " + secret.Reveal()}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := authenticator.Authenticate(b.Context(), header, "192.0.2.1:5"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
