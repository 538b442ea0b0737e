package auth

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// counted returns a counter or gauge of the registry by its name and the value
// of its only label, if it has one.
func counted(t *testing.T, registry *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != name || label != "" && metric.GetLabel()[0].GetValue() != label {
				continue
			}
			if family.GetType() == dto.MetricType_GAUGE {
				return metric.GetGauge().GetValue()
			}
			return metric.GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s %s", name, label)
	return 0
}

// within calls ok until it says yes, or fails the test after a while.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// A key in steady use asks the store in the background, once however many
// calls there are, and never waits for it.
func TestRemembered(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		registry := prometheus.NewRegistry()
		keys := openKeys(t, open(), KeysConfig{Clock: now.Now, Registerer: registry})
		_, secret := createKey(t, keys, NewKey{})
		lookups := func(how string) float64 { return counted(t, registry, "budgetd_auth_key_lookups_total", how) }
		authenticate := func() {
			t.Helper()
			if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
				t.Fatal(err)
			}
		}
		authenticate()
		if asked := lookups("asked"); asked != 1 {
			t.Fatalf("asked = %v, want 1", asked)
		}
		now.Advance(499 * time.Millisecond)
		authenticate()
		keys.running.Wait()
		if record, _ := keys.known.get(idOf(secret)); record.readAt != now.Now().Add(-499*time.Millisecond) {
			t.Error("the store was asked before half of the TTL")
		}
		now.Advance(time.Millisecond)
		authenticate()
		keys.running.Wait()
		if record, _ := keys.known.get(idOf(secret)); record.readAt != now.Now() {
			t.Error("the store was not asked at half of the TTL")
		}
		now.Advance(999 * time.Millisecond)
		authenticate()
		keys.running.Wait()
		if asked, fresh := lookups("asked"), lookups("fresh"); asked != 1 || fresh != 3 {
			t.Errorf("asked = %v, fresh = %v, want 1 and 3: a call waited", asked, fresh)
		}
		now.Advance(time.Second)
		authenticate()
		if asked := lookups("asked"); asked != 2 {
			t.Errorf("asked = %v, want 2: what is one TTL old was taken as true", asked)
		}
	})
}

func idOf(secret Secret) string { return secret.Reveal()[len(keyPrefix) : len(keyPrefix)+idChars] }

// A store that is away stops no call whose key is known, for StaleFor.
func TestStoreAway(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		registry := prometheus.NewRegistry()
		var logged bytes.Buffer
		db := open()
		keys := openKeys(t, db, KeysConfig{Clock: now.Now, StaleFor: time.Minute, Registerer: registry, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		_, secret := createKey(t, keys, NewKey{})
		_, late := createKey(t, keys, NewKey{ExpiresAt: now.Now().Add(30 * time.Second)})
		_, never := createKey(t, keys, NewKey{})
		for _, known := range []Secret{secret, late} {
			if _, err := keys.Authenticate(t.Context(), known.Reveal()); err != nil {
				t.Fatal(err)
			}
		}
		db.Close() // as if the store were gone for good
		now.Advance(time.Second)
		for range 3 {
			if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
				t.Errorf("a known key: %v", err)
			}
		}
		if _, err := keys.Authenticate(t.Context(), never.Reveal()); err != ErrUnavailable {
			t.Errorf("a key that this node never met: %v, want ErrUnavailable", err)
		}
		if stale := counted(t, registry, "budgetd_auth_key_lookups_total", "stale"); stale != 3 {
			t.Errorf("stale = %v, want 3", stale)
		}
		now.Advance(29 * time.Second)
		if _, err := keys.Authenticate(t.Context(), late.Reveal()); !errors.Is(err, ErrKeyExpired) {
			t.Errorf("a known key that has expired meanwhile: %v, want ErrKeyExpired", err)
		}
		now.Advance(30*time.Second - time.Microsecond)
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
			t.Errorf("just before StaleFor: %v", err)
		}
		now.Advance(time.Microsecond)
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != ErrUnavailable {
			t.Errorf("after StaleFor: %v, want ErrUnavailable", err)
		}
		now.Advance(-time.Hour) // a clock that was set back says nothing about age
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != ErrUnavailable {
			t.Errorf("with the clock set back: %v, want ErrUnavailable", err)
		}
		keys.Close()
		if n := strings.Count(logged.String(), "does not answer"); n != 1 {
			t.Errorf("the outage was logged %d times: %s", n, logged.String())
		}
		for _, key := range []Secret{secret, late, never} {
			assertHides(t, logged.String(), key)
		}
	})
}

// Told that keys have changed, a node asks for each again, and for those that it
// did not find; not so that an outage would stop anybody.
func TestRecheck(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		maker := openKeys(t, open(), KeysConfig{Clock: now.Now})
		db := open()
		keys := openKeys(t, db, KeysConfig{Clock: now.Now, Wait: storeTimeout, Log: slog.New(slog.DiscardHandler)})
		revoked, revokedSecret := createKey(t, maker, NewKey{})
		_, secret := createKey(t, maker, NewKey{})
		for range 2 {
			for _, good := range []Secret{revokedSecret, secret} {
				if _, err := keys.Authenticate(t.Context(), good.Reveal()); err != nil {
					t.Errorf("before: %v", err)
				}
			}
			if revoked, err := maker.Revoke(t.Context(), revoked.ID, "test"); err != nil || revoked.RevokedAt.IsZero() {
				t.Fatal(revoked, err)
			}
		}
		keys.Recheck()
		if _, err := keys.Authenticate(t.Context(), revokedSecret.Reveal()); err != ErrKeyRevoked {
			t.Errorf("the revoked key: %v", err)
		}
		db.Close()
		keys.Recheck()
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
			t.Errorf("the other while the store is away: %v", err)
		}
	})
}

// A store that is frozen (here: the table is locked) is waited for Wait, and
// found again by itself.
func TestStoreFrozen(t *testing.T) {
	t.Parallel()
	open := postgres(t)
	now := newClock()
	registry := prometheus.NewRegistry()
	keys := openKeys(t, open(), KeysConfig{Clock: now.Now, Wait: 10 * time.Millisecond, Registerer: registry})
	_, secret := createKey(t, keys, NewKey{})
	_, never := createKey(t, keys, NewKey{})
	within(t, "the key is known", func() bool {
		_, err := keys.Authenticate(t.Context(), secret.Reveal())
		return err == nil
	})
	lock, err := open().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ExecContext(t.Context(), `LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	now.Advance(time.Second)
	started := time.Now()
	if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
		t.Errorf("a known key: %v", err)
	}
	if _, err := keys.Authenticate(t.Context(), never.Reveal()); err != ErrUnavailable {
		t.Errorf("an unknown key: %v", err)
	}
	if took := time.Since(started); took >= storeTimeout/2 {
		t.Errorf("two calls took %v: they waited for the lookup to end", took)
	}
	if stale := counted(t, registry, "budgetd_auth_key_lookups_total", "stale"); stale != 1 {
		t.Errorf("stale = %v, want 1", stale)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	within(t, "the key that was never met works", func() bool {
		_, err := keys.Authenticate(t.Context(), never.Reveal())
		return err == nil
	})
}

// Made-up keys take neither memory nor connections without bound, and known
// keys go on working beside them.
func TestFlood(t *testing.T) {
	t.Parallel()
	open := postgres(t)
	now := newClock()
	registry := prometheus.NewRegistry()
	keys := openKeys(t, open(), KeysConfig{Clock: now.Now, Wait: time.Millisecond, MaxKnown: 3, MaxUnknown: 5, Registerer: registry})
	_, secret := createKey(t, keys, NewKey{})
	within(t, "the key is known", func() bool {
		_, err := keys.Authenticate(t.Context(), secret.Reveal())
		return err == nil
	})
	lock, err := open().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ExecContext(t.Context(), `LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	for range 3 * maxStrangers {
		_, madeUp := newKey()
		if _, err := keys.Authenticate(t.Context(), madeUp.Reveal()); err != ErrUnavailable {
			t.Fatalf("a made-up key while the store is frozen: %v", err)
		}
	}
	keys.mu.Lock()
	underWay := len(keys.lookups)
	keys.mu.Unlock()
	if underWay > maxStrangers {
		t.Errorf("%d lookups are under way, more than %d", underWay, maxStrangers)
	}
	if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
		t.Errorf("the known key: %v", err)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	within(t, "strangers are looked up again and remembered as such", func() bool {
		_, madeUp := newKey()
		_, err := keys.Authenticate(t.Context(), madeUp.Reveal())
		keys.mu.Lock()
		defer keys.mu.Unlock()
		return err == ErrInvalidKey && keys.unknown.len() == 5
	})
	for range 20 {
		_, madeUp := newKey()
		keys.Authenticate(t.Context(), madeUp.Reveal())
	}
	keys.running.Wait()
	if n := keys.unknown.len(); n != 5 {
		t.Errorf("%d unknown ids are remembered, want 5", n)
	}
	if n := counted(t, registry, "budgetd_auth_keys_remembered", ""); n != 1 {
		t.Errorf("%v keys are remembered, want 1: made-up ones displaced it", n)
	}
}

// A made-up key is asked for once a TTL, and a key that is made later works a
// TTL later at the latest.
func TestUnknownIsRemembered(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		registry := prometheus.NewRegistry()
		db := open()
		keys := openKeys(t, db, KeysConfig{Clock: now.Now, Registerer: registry})
		key, secret := createKey(t, keys, NewKey{})
		// As if the node had not heard of it yet.
		if _, err := db.ExecContext(t.Context(), `UPDATE api_keys SET id = 'elsewhere' WHERE id = $1`, key.ID); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != ErrInvalidKey {
				t.Fatal(err)
			}
		}
		if asked, unknown := counted(t, registry, "budgetd_auth_key_lookups_total", "asked"), counted(t, registry, "budgetd_auth_key_lookups_total", "unknown"); asked != 1 || unknown != 4 {
			t.Errorf("asked = %v, unknown = %v, want 1 and 4", asked, unknown)
		}
		if _, err := db.ExecContext(t.Context(), `UPDATE api_keys SET id = $1`, key.ID); err != nil {
			t.Fatal(err)
		}
		now.Advance(time.Second)
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != nil {
			t.Errorf("a TTL later: %v", err)
		}
	})
}

// Revoked while many calls are under way: no call that starts after Revoke has
// returned gets in on that node.
func TestRevokeUnderLoad(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		keys := openKeys(t, open(), KeysConfig{TTL: 2 * time.Millisecond})
		for range 5 {
			key, secret := createKey(t, keys, NewKey{})
			ctx, cancel := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			var revokedAt time.Time
			var revoked sync.RWMutex // held for reading while a call starts before the revocation
			for range 4 {
				callers.Go(func() {
					for ctx.Err() == nil {
						revoked.RLock()
						after := !revokedAt.IsZero()
						revoked.RUnlock()
						if _, err := keys.Authenticate(ctx, secret.Reveal()); after && err == nil {
							t.Error("a call that started after Revoke got in")
							return
						}
						if after {
							return
						}
					}
				})
			}
			_, err := keys.Revoke(t.Context(), key.ID, "test")
			revoked.Lock()
			revokedAt = time.Now()
			revoked.Unlock()
			if err != nil {
				t.Error(err)
			}
			callers.Wait()
			cancel()
		}
	})
}

func TestClose(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		keys := openKeys(t, open(), KeysConfig{})
		_, secret := createKey(t, keys, NewKey{})
		if err := keys.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Authenticate(t.Context(), secret.Reveal()); err != ErrUnavailable {
			t.Errorf("after Close: %v, want ErrUnavailable", err)
		}
	})
}

func TestRecentForgetsTheLeastUsed(t *testing.T) {
	r := newRecent[int](2)
	r.put("a", 1)
	r.put("b", 2)
	r.get("a")
	r.put("c", 3)
	if _, ok := r.get("b"); ok {
		t.Error("b, used least recently, is still there")
	}
	r.put("a", 4)
	r.put("d", 5)
	if v, ok := r.get("a"); !ok || v != 4 {
		t.Errorf("a = %d, %v, want 4", v, ok)
	}
	r.remove("a")
	r.remove("nobody")
	if r.len() != 1 {
		t.Errorf("len = %d, want 1", r.len())
	}
}

// What was read before a key was revoked here is not remembered after it.
func TestLateAnswerIsNotRemembered(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		keys := openKeys(t, open(), KeysConfig{})
		_, secret := createKey(t, keys, NewKey{})
		id := idOf(secret)
		for _, forgotten := range []bool{false, true} {
			question := &lookup{done: make(chan struct{})}
			keys.mu.Lock()
			keys.lookups[id] = question
			keys.mu.Unlock()
			if forgotten { // as Revoke does
				keys.forget(id)
			}
			keys.answer(t.Context(), id, question, false)
			if question.err != nil || question.record.ID != id {
				t.Fatalf("who waited got %+v, %v", question.record.Key, question.err)
			}
			if _, remembered := keys.known.get(id); remembered == forgotten {
				t.Errorf("forgotten meanwhile: %v, remembered: %v", forgotten, remembered)
			}
		}
	})
}
