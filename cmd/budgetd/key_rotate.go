package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newKeyRotateSigningCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "rotate-signing",
		Short: "Make a new key for the authentication of reservation ids",
		Long: `Makes a new key that signs reservation ids, on every broker at once, and retires
the others. Ids that they signed go on working for as long as a Refund may come.
It asks a running broker.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.RotateSigningKey(cmd.Context(), connect.NewRequest(&budgetv1.RotateSigningKeyRequest{}))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			fmt.Fprintf(s.out, "signing key %d was made and signs soon\n", answer.Msg.KeyId)
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}
