package auth

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func openKeys(t *testing.T, db *sql.DB, config KeysConfig) *Keys {
	t.Helper()
	// Machines that run tests are slow. Where the wait matters a test sets it.
	setDefault(&config.Wait, storeTimeout)
	keys, err := NewKeys(db, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close() })
	return keys
}

func createKey(t *testing.T, keys *Keys, n NewKey) (Key, Secret) {
	t.Helper()
	if n.Name == "" {
		n.Name = "test"
	}
	if n.Role == "" {
		n.Role = RoleCaller
	}
	n.By = "test"
	if n.Role == RoleCaller && n.Accounts == nil {
		n.Accounts = []string{"acme"}
	}
	key, secret, err := keys.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return key, secret
}

func TestCreateAndAuthenticate(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		keys := openKeys(t, open(), KeysConfig{Clock: now.Now})
		key, secret := createKey(t, keys, NewKey{Name: "gateway 7 — Zürich", Accounts: []string{"b:2", "acme", "b:2", "A.1@x"}, ExpiresAt: now.Now().Add(time.Hour)})
		want := Key{
			ID: key.ID, Name: "gateway 7 — Zürich", Role: RoleCaller, Accounts: []string{"A.1@x", "acme", "b:2"},
			Last4: secret.Reveal()[len(secret.Reveal())-4:], CreatedAt: now.Now(), ExpiresAt: now.Now().Add(time.Hour), CreatedBy: "test",
		}
		if diff := cmp.Diff(want, key); diff != "" {
			t.Error(diff)
		}
		listed, err := keys.List(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Key{want}, listed); diff != "" {
			t.Error(diff)
		}
		// Another node, which has only the store.
		principal, err := openKeys(t, open(), KeysConfig{Clock: now.Now}).Authenticate(t.Context(), secret.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Principal{KeyID: key.ID, Name: key.Name, Role: RoleCaller, Accounts: want.Accounts}, principal); diff != "" {
			t.Error(diff)
		}
	})
}

// What the store has cannot be used as a key, and does not contain one.
func TestStoreHasNoKey(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		keys := openKeys(t, db, KeysConfig{})
		key, secret := createKey(t, keys, NewKey{})
		var row struct {
			id, name, role, accounts, last4 string
			hash                            []byte
		}
		err := db.QueryRowContext(t.Context(), `SELECT id, name, role, accounts, last4, key_sha256 FROM api_keys`).
			Scan(&row.id, &row.name, &row.role, &row.accounts, &row.last4, &row.hash)
		if err != nil {
			t.Fatal(err)
		}
		assertHides(t, fmt.Sprintf("%+v %s", row, row.hash), secret)
		if hash := hashKey(secret.Reveal()); !bytes.Equal(row.hash, hash[:]) || row.id != key.ID {
			t.Errorf("the stored hash of %s is not that of the key", row.id)
		}
	})
}

func TestInvalidKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		keys := openKeys(t, open(), KeysConfig{})
		key, secret := createKey(t, keys, NewKey{})
		_, unknown := newKey()
		// The right id with another key's secret, and a right checksum.
		body := keyPrefix + key.ID + unknown.Reveal()[len(keyPrefix)+idChars:keyChars-checksumChars]
		forged := body + checksum(body)
		if id, ok := parseKey(forged); !ok || id != key.ID {
			t.Fatal("the forged key is malformed")
		}
		for name, presented := range map[string]string{
			"unknown": unknown.Reveal(), "forged": forged, "malformed": "bk_nonsense", "empty": "",
			"the id": key.ID, "demo": DemoKey, "injection": "bk_' OR 1=1 --",
		} {
			for range 2 { // the second time from the cache
				principal, err := keys.Authenticate(t.Context(), presented)
				if err != ErrInvalidKey || principal.KeyID != "" {
					t.Errorf("%s: %v, %v, want ErrInvalidKey itself, so that nothing tells which it is", name, principal, err)
				}
			}
		}
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
			t.Errorf("the key itself: %v", err)
		}
	})
}

func TestRevoke(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		here := openKeys(t, open(), KeysConfig{Clock: now.Now})
		there := openKeys(t, open(), KeysConfig{Clock: now.Now})
		key, secret := createKey(t, here, NewKey{})
		_, other := createKey(t, here, NewKey{})
		for _, node := range []*Keys{here, there} {
			if _, err := node.Authenticate(t.Context(), secret.Reveal()); err != nil {
				t.Fatal(err)
			}
		}
		revoked, err := here.Revoke(t.Context(), key.ID, "olga@desk")
		if err != nil {
			t.Fatal(err)
		}
		if !revoked.RevokedAt.Equal(now.Now()) || revoked.ID != key.ID || revoked.CreatedBy != "test" || revoked.RevokedBy != "olga@desk" {
			t.Errorf("revoked = %+v, want it at %v, made by test and revoked by olga@desk", revoked, now.Now())
		}
		for _, by := range []string{"", strings.Repeat("x", 129), "a\nb"} {
			if _, err := here.Revoke(t.Context(), key.ID, by); err == nil || !strings.HasPrefix(err.Error(), "by: ") {
				t.Errorf("revoked by %.20q: %v", by, err)
			}
		}
		if _, err := here.Authenticate(t.Context(), secret.Reveal()); !errors.Is(err, ErrKeyRevoked) {
			t.Errorf("on the node that revoked it: %v, want ErrKeyRevoked", err)
		}
		// Within a second on the other, whatever it remembers.
		now.Advance(time.Second)
		if _, err := there.Authenticate(t.Context(), secret.Reveal()); !errors.Is(err, ErrKeyRevoked) {
			t.Errorf("on another node a second later: %v, want ErrKeyRevoked", err)
		}
		if _, err := there.Authenticate(t.Context(), other.Reveal()); err != nil {
			t.Errorf("another key: %v", err)
		}
		// Again changes nothing.
		again, err := there.Revoke(t.Context(), key.ID, "test")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(revoked, again); diff != "" {
			t.Errorf("revoked again: %s", diff)
		}
		unknownID, _ := newKey()
		for _, id := range []string{unknownID, "", "x", "' OR 1=1 --", strings.Repeat("a", 1<<20)} {
			if _, err := here.Revoke(t.Context(), id, "test"); !errors.Is(err, ErrKeyNotFound) || len(err.Error()) > 200 {
				t.Errorf("Revoke(%.20q) = %.300v, want ErrKeyNotFound", id, err)
			}
		}
	})
}

func TestExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		keys := openKeys(t, open(), KeysConfig{Clock: now.Now})
		_, secret := createKey(t, keys, NewKey{ExpiresAt: now.Now().Add(600 * time.Millisecond)})
		now.Advance(600*time.Millisecond - time.Microsecond)
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
			t.Errorf("1 us before: %v", err)
		}
		// To the microsecond, also from the cache.
		now.Advance(time.Microsecond)
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); !errors.Is(err, ErrKeyExpired) {
			t.Errorf("at the instant: %v, want ErrKeyExpired", err)
		}
	})
}

func TestCreateRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		keys := openKeys(t, open(), KeysConfig{Clock: now.Now})
		many := make([]string, MaxAccounts+1)
		for i := range many {
			many[i] = fmt.Sprint("a", i)
		}
		for want, n := range map[string]NewKey{
			"name: it is empty":              {Role: RoleAdmin},
			"by: it has 129 bytes":           {Role: RoleAdmin, Name: "n", By: strings.Repeat("n", 129)},
			"name: it has 129 bytes":         {Role: RoleAdmin, Name: strings.Repeat("n", 129)},
			"name: it is not valid UTF-8":    {Role: RoleAdmin, Name: "\xff"},
			"name: it contains a control":    {Role: RoleAdmin, Name: "a\nb"},
			"or invisible formatting":        {Role: RoleAdmin, Name: "a\u202eb"},
			"as a pasted API key would":      {Role: RoleAdmin, Name: "bk_aaaaaaaaaaaaaaaa"},
			`role: "" is not a role`:         {Name: "n"},
			`role: "root" is not a role`:     {Name: "n", Role: "root"},
			"accounts: a caller key needs":   {Name: "n", Role: RoleCaller},
			"accounts: an admin key reaches": {Name: "n", Role: RoleAdmin, Accounts: []string{"acme"}},
			"accounts: account: \"\"":        {Name: "n", Role: RoleCaller, Accounts: []string{""}},
			"accounts: account: \"a b\"":     {Name: "n", Role: RoleCaller, Accounts: []string{"a b"}},
			"stands for every account":       {Name: "n", Role: RoleCaller, Accounts: []string{"a", "*"}},
			"at most 1000":                   {Name: "n", Role: RoleCaller, Accounts: many},
			"expires_at: 2026-11-15T09:30":   {Name: "n", Role: RoleAdmin, ExpiresAt: now.Now()},
		} {
			if n.By == "" {
				n.By = "test"
			}
			if _, _, err := keys.Create(t.Context(), n); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Create(%.100v) = %v, want an error with %q", n, err, want)
			}
		}
		listed, err := keys.List(t.Context(), "", 10)
		if err != nil || len(listed) != 0 {
			t.Errorf("List = %v, %v: something was made", listed, err)
		}
	})
}

func TestEveryAccount(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		keys := openKeys(t, open(), KeysConfig{})
		for _, n := range []NewKey{{Role: RoleAdmin}, {Role: RoleAdmin, Accounts: []string{"*"}}, {Role: RoleCaller, Accounts: []string{"*", "*"}}} {
			_, secret := createKey(t, keys, n)
			p, err := keys.Authenticate(t.Context(), secret.Reveal())
			if err != nil || !p.MayUse("anything") || p.IsAdmin() != (n.Role == RoleAdmin) {
				t.Errorf("%+v: %+v, %v", n, p, err)
			}
		}
	})
}

func TestListPages(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		keys := openKeys(t, open(), KeysConfig{Clock: now.Now})
		var made []Key
		for i := range 7 {
			key, _ := createKey(t, keys, NewKey{Name: fmt.Sprint(i)})
			made = append(made, key)
			if i%3 == 2 { // three at a time have the same instant
				now.Advance(time.Microsecond)
			}
		}
		slices.SortFunc(made, func(a, b Key) int {
			if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
				return c
			}
			return strings.Compare(a.ID, b.ID)
		})
		for _, size := range []int{1, 2, 3, 7, 1000} {
			var listed []Key
			for after := ""; ; after = listed[len(listed)-1].ID {
				page, err := keys.List(t.Context(), after, size)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) > size {
					t.Fatalf("a page of %d has %d", size, len(page))
				}
				listed = append(listed, page...)
				if len(page) < size {
					break
				}
			}
			if diff := cmp.Diff(made, listed); diff != "" {
				t.Errorf("by %d: %s", size, diff)
			}
		}
		for _, limit := range []int{-1, 0, 1001} {
			if _, err := keys.List(t.Context(), "", limit); err == nil || !strings.Contains(err.Error(), "limit") {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
		if _, err := keys.List(t.Context(), "nobody", 1); !errors.Is(err, ErrKeyNotFound) {
			t.Errorf("after an unknown id: %v", err)
		}
	})
}

func TestEnsureAdminKey(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		var mu sync.Mutex
		var made []Secret
		var start, done sync.WaitGroup
		start.Add(1)
		for range 8 {
			node := openKeys(t, open(), KeysConfig{Clock: now.Now})
			done.Go(func() {
				start.Wait()
				var secret Secret
				created, err := node.EnsureAdminKey(t.Context(), func(made Secret) error { secret = made; return nil })
				if err != nil {
					t.Error(err)
				}
				if created != (secret.Reveal() != "") {
					t.Errorf("created = %v and the secret has %d characters", created, len(secret.Reveal()))
				}
				if created {
					mu.Lock()
					made = append(made, secret)
					mu.Unlock()
				}
			})
		}
		start.Done()
		done.Wait()
		if len(made) != 1 {
			t.Fatalf("eight nodes that started at once made %d admin keys", len(made))
		}
		keys := openKeys(t, open(), KeysConfig{Clock: now.Now})
		principal, err := keys.Authenticate(t.Context(), made[0].Reveal())
		if err != nil || !principal.IsAdmin() {
			t.Fatalf("%+v, %v, want an admin", principal, err)
		}
		// Neither a caller's key nor a revoked one counts.
		createKey(t, keys, NewKey{Accounts: []string{"*"}})
		if _, err := keys.Revoke(t.Context(), principal.KeyID, "test"); err != nil {
			t.Fatal(err)
		}
		// A key that can't be kept is not made: nobody would know it.
		full := errors.New("the disk is full")
		if created, err := keys.EnsureAdminKey(t.Context(), func(Secret) error { return full }); created || !errors.Is(err, full) {
			t.Errorf("a key that could not be kept: %v, %v", created, err)
		}
		kept := func(Secret) error { return nil }
		if created, err := keys.EnsureAdminKey(t.Context(), kept); err != nil || !created {
			t.Errorf("after the last admin key was revoked: %v, %v", created, err)
		}
		if created, err := keys.EnsureAdminKey(t.Context(), kept); err != nil || created {
			t.Errorf("with an admin key: %v, %v", created, err)
		}
	})
}

func TestUnreadableKey(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		var logged bytes.Buffer
		keys := openKeys(t, db, KeysConfig{Log: slog.New(slog.NewTextHandler(&logged, nil))})
		key, secret := createKey(t, keys, NewKey{})
		_, good := createKey(t, keys, NewKey{})
		// As a later version may write it.
		if _, err := db.ExecContext(t.Context(), `UPDATE api_keys SET accounts = '{"prefix":"a"}' WHERE id = $1`, key.ID); err != nil {
			t.Fatal(err)
		}
		if p, err := keys.Authenticate(t.Context(), secret.Reveal()); err != ErrInvalidKey {
			t.Errorf("%+v, %v, want ErrInvalidKey", p, err)
		}
		if _, err := keys.Authenticate(t.Context(), good.Reveal()); err != nil {
			t.Errorf("another key: %v", err)
		}
		if _, err := keys.List(t.Context(), "", 10); err == nil || !strings.Contains(err.Error(), key.ID) || errors.Is(err, ErrUnavailable) {
			t.Errorf("List: %v, want an error that names the key", err)
		}
		keys.Close()
		if !strings.Contains(logged.String(), key.ID) {
			t.Errorf("logged: %q", logged.String())
		}
		assertHides(t, logged.String(), secret)
	})
}

func TestKeysConfig(t *testing.T) {
	for want, config := range map[string]KeysConfig{
		"TTL: 1.000000001s": {TTL: time.Second + 1},
		"TTL: -1ns":         {TTL: -1},
		"wait: 3s":          {Wait: 3 * time.Second},
		"MaxKnown":          {MaxKnown: -1},
		"MaxUnknown":        {MaxUnknown: -1},
	} {
		if _, err := NewKeys(nil, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewKeys(%+v) = %v, want an error with %q", config, err, want)
		}
	}
}

func TestCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		keys := openKeys(t, open(), KeysConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, unknown := newKey()
		if _, err := keys.Authenticate(ctx, unknown.Reveal()); !errors.Is(err, context.Canceled) && err != ErrInvalidKey {
			t.Errorf("Authenticate: %v", err)
		}
		if _, _, err := keys.Create(ctx, NewKey{Name: "n", Role: RoleAdmin, By: "test"}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("Create: %v", err)
		}
	})
}
