package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

const defaultServer = "http://127.0.0.1:8080"

// connection is how a command reaches a broker, and how it prints the answer.
type connection struct {
	server  string
	keyFile string
	json    bool
}

func (c *connection) addFlags(cmd *cobra.Command) {
	server := os.Getenv(config.EnvServer)
	if server == "" {
		server = defaultServer
	}
	cmd.Flags().StringVar(&c.server, "server", server, "address of the broker ("+config.EnvServer+")")
	cmd.Flags().StringVar(&c.keyFile, "key-file", "", "`file` that holds the API key; without it "+config.EnvKey+" is read")
	addJSONFlag(cmd, &c.json)
}

// addJSONFlag adds --json, which is on by itself where no terminal reads.
func addJSONFlag(cmd *cobra.Command, value *bool) {
	cmd.Flags().BoolVar(value, "json", false, "print JSON; the default where the output is not a terminal")
}

// wantsJSON says how to print: as the flag says, else by who reads.
func wantsJSON(cmd *cobra.Command, value bool, out io.Writer) bool {
	if cmd.Flags().Changed("json") {
		return value
	}
	return !onTerminal(out)
}

// key reads the API key from the file that was named, else from the environment.
func (c *connection) key(cmd *cobra.Command) (string, error) {
	key := os.Getenv(config.EnvKey)
	if c.keyFile != "" {
		text, err := os.ReadFile(c.keyFile)
		if err != nil {
			return "", fmt.Errorf("--key-file: %w", err)
		}
		key = strings.TrimSpace(string(text))
	}
	if key == "" {
		return "", usagef(cmd, "no API key: set %s or give --key-file (the demo broker's key is \"demo\")", config.EnvKey)
	}
	return key, nil
}

func (c *connection) open(cmd *cobra.Command) (*budget.Client, error) {
	key, err := c.key(cmd)
	if err != nil {
		return nil, err
	}
	client, err := budget.New(c.server, key)
	if err != nil {
		return nil, usagef(cmd, "--server: %v", err)
	}
	return client, nil
}

// explain adds to an error which server answered it, or did not, and what to do
// where the broker's own text can't know that.
func (c *connection) explain(err error) error {
	var rpc *connect.Error
	var refused *budget.RefusedError
	if !errors.As(err, &rpc) || errors.As(err, &refused) {
		return err
	}
	told := connect.IsWireError(err) // by what answers there
	switch code := rpc.Code(); {
	case !told && code == connect.CodeCanceled:
		return err
	case !told && code == connect.CodeDeadlineExceeded:
		return fmt.Errorf("the broker at %s did not answer in time: %w", c.server, err)
	case !told && code == connect.CodeUnavailable:
		return fmt.Errorf("no broker answers at %s; start one with `budgetd serve --demo`, or name another with --server or %s: %w", c.server, config.EnvServer, err)
	case !told, rpc.Message() == "" && len(rpc.Details()) == 0:
		// Nothing but a status of HTTP, though a proxy's comes with JSON.
		return fmt.Errorf("what answers at %s is no broker; name the broker with --server or %s (a proxy is none, and has another address than its broker): %w", c.server, config.EnvServer, err)
	case code == connect.CodeUnauthenticated:
		from := config.EnvKey
		if c.keyFile != "" {
			from = c.keyFile
		}
		return fmt.Errorf("%w (the broker is %s, the key that of %s)", err, c.server, from)
	case code == connect.CodePermissionDenied, code == connect.CodeNotFound:
		return fmt.Errorf("%w (the broker is %s)", err, c.server)
	}
	return err
}

// renamed is an error of a broker that names a flag instead of the API's field.
type renamed struct {
	err         error
	field, flag string
}

func (r *renamed) Error() string { return strings.ReplaceAll(r.err.Error(), r.field+": ", r.flag+": ") }
func (r *renamed) Unwrap() error { return r.err }

// printJSON prints a message as the API's own JSON, one line.
func printJSON(out io.Writer, message proto.Message) error {
	return printJSONBy(protojson.MarshalOptions{}, out, message)
}

// printWholeJSON prints fields that are zero, too: for answers in which 0 is the
// news.
func printWholeJSON(out io.Writer, message proto.Message) error {
	return printJSONBy(protojson.MarshalOptions{EmitDefaultValues: true}, out, message)
}

func printJSONBy(options protojson.MarshalOptions, out io.Writer, message proto.Message) error {
	text, err := options.Marshal(message)
	if err != nil {
		return err
	}
	// protojson varies its white space on purpose; encoding/json does not.
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(value)
}

// parseLabels reads --label name=value.
func parseLabels(cmd *cobra.Command, pairs []string) (map[string]string, error) {
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef(cmd, "--label %q: want NAME=VALUE, such as route=chat", pair)
		}
		labels[name] = value
	}
	return labels, nil
}
