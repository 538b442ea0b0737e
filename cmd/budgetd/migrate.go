package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/migrations"
)

func newMigrateCommand(s streams) *cobra.Command {
	var status, asJSON bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Long: `Applies the migrations that the database lacks, and prints them. serve does the
same at its start; this is for those who want it as a step of its own. Several
nodes may do it at once. A schema that is newer than this budgetd is refused.`,
		Example: `  budgetd migrate --data ./budgetd-data
  budgetd migrate --postgres postgres://budgetd@127.0.0.1/budgetd --status`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.LoadForStore(cmd.Flags(), os.LookupEnv)
			if err != nil {
				return err
			}
			d, err := app.OpenDatabase(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer d.Close()
			var list []migrations.Migration
			if status {
				list, err = migrations.Status(cmd.Context(), d.DB, d.Dialect)
			} else {
				list, err = d.Migrate(cmd.Context())
			}
			if err != nil {
				return err
			}
			if wantsJSON(cmd, asJSON, s.out) {
				return printMigrationsJSON(s, list)
			}
			if len(list) == 0 {
				fmt.Fprintf(s.out, "%s is up to date\n", d.Where)
				return nil
			}
			t := newTable(s.out, "VERSION", "MIGRATION", "APPLIED")
			for _, m := range list {
				applied := "pending"
				if !m.Pending() {
					applied = showTime(m.AppliedAt)
				}
				t.AppendRow([]any{m.Version, m.Name, applied})
			}
			t.Render()
			return nil
		},
	}
	addStoreFlags(cmd)
	cmd.Flags().BoolVar(&status, "status", false, "list the migrations and change nothing")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func printMigrationsJSON(s streams, list []migrations.Migration) error {
	type row struct {
		Version   int64      `json:"version"`
		Name      string     `json:"name"`
		AppliedAt *time.Time `json:"appliedAt,omitempty"`
	}
	rows := make([]row, len(list))
	for i, m := range list {
		rows[i] = row{Version: m.Version, Name: m.Name}
		if !m.Pending() {
			rows[i].AppliedAt = &m.AppliedAt
		}
	}
	return json.NewEncoder(s.out).Encode(rows)
}
