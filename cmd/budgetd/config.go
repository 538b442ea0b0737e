package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

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
			var stated []statedPolicy
			for _, file := range files {
				policy, err := checkPolicyFile(file)
				stated, faults = append(stated, policy), append(faults, err)
			}
			if err := errors.Join(faults...); err != nil {
				return &exit{code: config.ExitCode, err: err}
			}
			if wantsJSON(cmd, asJSON, s.out) {
				values := map[string]any{"policy_files": stated}
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
			for _, policy := range stated {
				fmt.Fprintf(s.out, "%s: ok: %s\n", policy.File, policy.summary())
			}
			return nil
		},
	}
	config.AddFlags(cmd.Flags())
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// statedPolicy is what a policy file states, by name, in the file's order.
type statedPolicy struct {
	File     string   `json:"file"`
	Plans    []string `json:"plans"`
	Pools    []string `json:"pools"`
	Accounts []string `json:"accounts"`
	Prices   []string `json:"prices"` // provider/model
}

// summary names what there is, and counts what is more than a line has room for.
func (p statedPolicy) summary() string {
	const most = 8
	var parts []string
	for _, kind := range []struct {
		name  string
		names []string
	}{{"plans", p.Plans}, {"pools", p.Pools}, {"accounts", p.Accounts}, {"prices", p.Prices}} {
		switch n := len(kind.names); {
		case n == 0:
		case n > most:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.name))
		default:
			parts = append(parts, kind.name+" "+strings.Join(kind.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "it states nothing"
	}
	return strings.Join(parts, "; ")
}

func checkPolicyFile(path string) (statedPolicy, error) {
	stated := statedPolicy{File: path, Plans: []string{}, Pools: []string{}, Accounts: []string{}, Prices: []string{}}
	text, err := os.ReadFile(path)
	if err != nil {
		return stated, err
	}
	document, err := policyfile.Parse(text)
	if err != nil {
		return stated, fmt.Errorf("%s:\n%w", path, err)
	}
	if _, err := document.Policy(0); err != nil {
		return stated, fmt.Errorf("%s, by itself:\n%w", path, err)
	}
	for _, plan := range document.Plans {
		stated.Plans = append(stated.Plans, plan.Name)
	}
	for _, pool := range document.Pools {
		stated.Pools = append(stated.Pools, pool.Name)
	}
	for _, account := range document.Accounts {
		stated.Accounts = append(stated.Accounts, account.Name)
	}
	for i := range document.Prices {
		stated.Prices = append(stated.Prices, document.Prices[i].Name())
	}
	return stated, nil
}
