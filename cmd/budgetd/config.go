package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/quota/policyfile"
)

func newConfigCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check settings and policy files",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(s))
	return cmd
}

func newConfigCheckCommand(s streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [POLICY_FILE...]",
		Short: "Say what is wrong with settings and policy files, without starting anything",
		Long: `Reads the settings as serve would (file, environment, flags) and the policy
files, prices and certificates that the settings or arguments name, and prints
every fault with its place and what to do. It connects to nothing: a policy file
must be whole, and one that builds on what a broker has stored is for apply
--dry-run. Without faults it prints the settings in force; passwords
are left out. The exit code is 78 when there is a fault.`,
		Example: `  budgetd config check
  budgetd config check --config /etc/budgetd.yaml plans.yaml`,
		RunE: func(cmd *cobra.Command, files []string) error {
			c, err := config.Load(cmd.Flags(), os.LookupEnv)
			if err != nil {
				return &exit{code: config.ExitCode, err: err}
			}
			faults := []error{app.CheckFiles(c)}
			if c.Policy != "" && faults[0] == nil {
				files = append([]string{c.Policy}, files...)
			}
			for _, file := range files {
				faults = append(faults, checkPolicyFile(file))
			}
			if err := errors.Join(faults...); err != nil {
				return &exit{code: config.ExitCode, err: err}
			}
			if wantsJSON(cmd, asJSON, s.out) {
				values := map[string]string{}
				for _, setting := range config.Settings() {
					values[setting.Name] = setting.Value(&c)
				}
				return json.NewEncoder(s.out).Encode(values)
			}
			t := newTable(s.out, "SETTING", "VALUE", "ENVIRONMENT")
			for _, setting := range config.Settings() {
				t.AppendRow([]any{setting.Name, setting.Value(&c), setting.Env()})
			}
			t.Render()
			for _, file := range files {
				fmt.Fprintf(s.out, "%s: ok\n", file)
			}
			return nil
		},
	}
	config.AddFlags(cmd.Flags())
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func checkPolicyFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, err := policyfile.Parse(text)
	if err != nil {
		return fmt.Errorf("%s:\n%w", path, err)
	}
	if _, err := document.Policy(0); err != nil {
		return fmt.Errorf("%s, by itself:\n%w", path, err)
	}
	return nil
}
