package main_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/budgetd/budgetd/test/broker"
)

// TestScripts runs the command line as people and scripts do. Besides
// testscript's own commands there are
//
//	exits CODE COMMAND...   runs a command, which must end with that code
//	serve ARGS...           starts a broker and sets BUDGETD_SERVER to it
//	proxy                   starts a proxy in front of it and sets PROXY to it
//	id FILE NAME            puts the reservationId of a JSON answer in a variable
//	capture FILE NAME RE    puts what the parentheses match in a variable
//	lossy METHOD            sets LOSSY to a way to the broker on which answers to
//	                        that call get lost, after they had their effect
func TestScripts(t *testing.T) {
	binary := broker.Binary(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Values["t"] = env.T().(testing.TB)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"serve":   serve,
			"proxy":   proxy,
			"id":      reservationID,
			"capture": capture,
			"lossy":   lossy,
		},
	})
}

var idPattern = regexp.MustCompile(`"reservationId":"([^"]+)"`)

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: serve ARGS...")
	}
	b := broker.Start(ts.Value("t").(testing.TB), args...)
	ts.Defer(b.Kill)
	ts.Setenv("BUDGETD_SERVER", b.URL)
}

func proxy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: proxy")
	}
	p := broker.StartProxy(ts.Value("t").(testing.TB), &broker.Broker{URL: ts.Getenv("BUDGETD_SERVER")})
	ts.Defer(p.Kill)
	ts.Setenv("PROXY", p.URL)
}

func reservationID(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: id FILE NAME")
	}
	found := idPattern.FindStringSubmatch(ts.ReadFile(args[0]))
	if found == nil {
		ts.Fatalf("no reservationId in %s", args[0])
	}
	ts.Setenv(args[1], found[1])
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: capture FILE NAME RE")
	}
	found := regexp.MustCompile(args[2]).FindStringSubmatch(ts.ReadFile(args[0]))
	if len(found) != 2 {
		ts.Fatalf("%s does not match %s", args[0], args[2])
	}
	ts.Setenv(args[1], found[1])
}

func lossy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lossy METHOD")
	}
	target, err := url.Parse(ts.Getenv("BUDGETD_SERVER"))
	ts.Check(err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	lost := errors.New("the answer is lost")
	proxy.ModifyResponse = func(answer *http.Response) error {
		if strings.HasSuffix(answer.Request.URL.Path, "/"+args[0]) {
			return lost
		}
		return nil
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	server := httptest.NewServer(proxy)
	ts.Defer(server.Close)
	ts.Setenv("LOSSY", server.URL)
}
