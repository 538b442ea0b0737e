package policystore

import (
	"fmt"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// What a node does when the policy of a large installation changes.
func BenchmarkLoad(b *testing.B) {
	for _, accounts := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("accounts=%d", accounts), func(b *testing.B) {
			db := opener(b, "sqlite", "file:"+filepath.Join(b.TempDir(), "budgetd.db")+"?_pragma=journal_mode(WAL)")()
			if _, err := migrations.Up(b.Context(), db, migrations.SQLite); err != nil {
				b.Fatal(err)
			}
			doc := &policyfile.Document{Plans: mustParse("%s", firstFile).Plans}
			for i := range accounts {
				doc.Accounts = append(doc.Accounts, quota.Account{Name: fmt.Sprint("account-", i), Plan: "pro", TimeZone: "Asia/Tokyo"})
			}
			store := Open(db, nil)
			if _, err := store.Apply(b.Context(), doc, Options{By: "bench"}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := store.Load(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*accounts), "us/account")
		})
	}
}

// Signing one account up when there are many.
func BenchmarkCreateAccount(b *testing.B) {
	db := opener(b, "sqlite", "file:"+filepath.Join(b.TempDir(), "budgetd.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")()
	if _, err := migrations.Up(b.Context(), db, migrations.SQLite); err != nil {
		b.Fatal(err)
	}
	doc := &policyfile.Document{Plans: mustParse("%s", firstFile).Plans}
	for i := range 100_000 {
		doc.Accounts = append(doc.Accounts, quota.Account{Name: fmt.Sprint("account-", i), Plan: "pro"})
	}
	store := Open(db, nil)
	if _, err := store.Apply(b.Context(), doc, Options{By: "bench"}); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		if _, err := store.CreateAccount(b.Context(), quota.Account{Name: fmt.Sprint("new-", i), Plan: "pro"}, "bench"); err != nil {
			b.Fatal(err)
		}
	}
}
