package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
)

func newApplyCommand(s streams) *cobra.Command {
	var dryRun, prune, asJSON bool
	var through remote
	cmd := &cobra.Command{
		Use:   "apply POLICY_FILE",
		Short: "Put the plans, pools and accounts of a file into force",
		Long: `Stores the plans, pools and accounts that a YAML file states, and prints what
changes. All of it or nothing: a file with a fault changes nothing. What the
file does not state stays, unless --prune is given. Running brokers follow
within a second; counters keep what was used.`,
		Example: `  budgetd apply plans.yaml --data ./budgetd-data
  budgetd apply plans.yaml --dry-run
  cat plans.yaml | budgetd apply - --postgres postgres://budgetd@127.0.0.1/budgetd
  budgetd apply plans.yaml --server https://budgetd.internal --key-file admin-key`,
		Args: exactArgs("POLICY_FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			document, text, err := readPolicy(cmd, args[0])
			if err != nil {
				return err
			}
			admin, err := through.client(cmd)
			if err != nil {
				return err
			}
			if admin != nil {
				change, err := through.apply(cmd, admin, args[0], text, dryRun, prune)
				if err != nil {
					return err
				}
				return showChange(cmd, s, through.where(), change, asJSON, dryRun)
			}
			return withStores(cmd, func(stores *app.Stores) error {
				options := policystore.Options{By: operator(), Prune: prune}
				put := stores.Policies.Apply
				if dryRun {
					put = stores.Policies.Diff
				}
				change, err := put(cmd.Context(), document, options)
				if err != nil {
					return policyFault(args[0], err)
				}
				return showChange(cmd, s, databaseOf(stores), change, asJSON, dryRun)
			})
		},
	}
	addStoreFlags(cmd)
	through.addFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would change and change nothing")
	cmd.Flags().BoolVar(&prune, "prune", false, "remove what the file does not state")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// policyFault gives an error that is the policy's own the exit code of bad
// configuration, and the name of the file.
func policyFault(path string, err error) error {
	if len(quota.FieldErrors(err)) == 0 {
		return err
	}
	return &exit{code: config.ExitCode, err: fmt.Errorf("%s:\n%w", path, err)}
}

// readPolicy returns what a file states, and its text.
func readPolicy(cmd *cobra.Command, path string) (document *policyfile.Document, text string, err error) {
	fault := func(err error) (*policyfile.Document, string, error) {
		return nil, "", &exit{code: config.ExitCode, err: err}
	}
	if path == "-" {
		path = "standard input"
		text, err = readAll(cmd.InOrStdin(), path)
	} else {
		var file *os.File
		if file, err = os.Open(path); err != nil {
			return fault(err)
		}
		defer file.Close()
		text, err = readAll(file, path)
	}
	if err != nil {
		return fault(err)
	}
	if document, err = policyfile.Parse([]byte(text)); err != nil {
		return fault(fmt.Errorf("%s:\n%w", path, err))
	}
	return document, text, nil
}

// showChange prints what a change of the policy did, or would do, and where.
func showChange(cmd *cobra.Command, s streams, where place, change policystore.Change, asJSON, dryRun bool) error {
	warn(s, change.Warnings)
	if wantsJSON(cmd, asJSON, s.out) {
		type field struct {
			Path string `json:"path"`
			Old  string `json:"old,omitempty"`
			New  string `json:"new,omitempty"`
		}
		type object struct {
			Kind   policystore.Kind   `json:"kind"`
			Name   string             `json:"name"`
			Action policystore.Action `json:"action"`
			Fields []field            `json:"fields,omitempty"`
		}
		objects := []object{}
		for _, o := range change.Objects {
			shown := object{Kind: o.Kind, Name: o.Name, Action: o.Action}
			for _, f := range o.Fields {
				shown.Fields = append(shown.Fields, field(f))
			}
			objects = append(objects, shown)
		}
		shown := map[string]any{
			"from": change.From, "version": change.Version, "dryRun": dryRun, "objects": objects, where.kind: where.name,
		}
		if len(change.Warnings) > 0 {
			shown["warnings"] = change.Warnings
		}
		return json.NewEncoder(s.out).Encode(shown)
	}
	fmt.Fprint(s.out, change.String())
	switch {
	case dryRun:
		fmt.Fprintf(s.out, "nothing was changed in %s: dry run\n", where)
	case change.Changes():
		fmt.Fprintf(s.out, "policy version %d is in force in %s\n", change.Version, where)
	default:
		fmt.Fprintf(s.out, "policy version %d in %s stays as it is\n", change.Version, where)
	}
	return nil
}
