package main

import (
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

// withStores opens the broker's database for a command that manages it, and
// closes it again.
func withStores(cmd *cobra.Command, work func(*app.Stores) error) error {
	c, err := config.LoadForStore(cmd.Flags(), os.LookupEnv)
	if err != nil {
		return err
	}
	stores, err := app.OpenStores(cmd.Context(), c, nil)
	if err != nil {
		return err
	}
	if stores.Made {
		fmt.Fprintf(cmd.ErrOrStderr(), "budgetd: note: %s did not exist and was made now; a broker with another --data or --postgres does not see it\n", stores.Where)
	}
	err = work(stores)
	if closeErr := stores.Close(); err == nil {
		err = closeErr
	}
	return err
}

// addStoreFlags adds the settings that say where the database is.
func addStoreFlags(cmd *cobra.Command) {
	all := cmd.Flags()
	config.AddFlags(all)
	for _, setting := range config.Settings() {
		switch setting.Name {
		case "data", "postgres":
		default:
			// Accepted, so that a command takes the flags that the broker was
			// started with, but of no use here.
			_ = all.MarkHidden(setting.Flag())
		}
	}
}

// operator is who the history names for a change by this command: the person,
// as far as the machine knows.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		return fmt.Sprintf("%s@%s", name, host)
	}
	return name
}
