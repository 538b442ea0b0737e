package sdks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/budgetd/budgetd/test/broker"
)

// page is a page of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is the first block of the language after the heading.
func block(t *testing.T, page, heading, language string) string {
	t.Helper()
	_, section, _ := strings.Cut(page, "\n## "+heading+"\n")
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)
	if found == nil {
		t.Fatalf("no block of %s after %q", language, heading)
	}
	return found[1]
}

// runPrinted runs lines of a page in one shell, with what they start in the
// background, and returns what they print. The broker and the proxy have ports of
// their own, which take the place of those in the lines, and openai is the
// provider of the test.
func runPrinted(t *testing.T, lines string) (string, *rig) {
	t.Helper()
	r := &rig{}
	r.Provider, r.bases = startProvider(t)
	b, p := broker.FreeAddress(t), broker.FreeAddress(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	shell := exec.Command("sh", "-euc", strings.ReplaceAll(lines, "127.0.0.1:8081", p))
	shell.Dir, shell.Stdout, shell.Stderr = nodeDir, out, out // a file: what goes on in the background may keep it open
	shell.Env = append(os.Environ(),
		"PATH="+filepath.Dir(broker.Binary(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "XDG_STATE_HOME="+t.TempDir(),
		"OPENAI_API_KEY="+providerKey, "BUDGETD_PROXY_UPSTREAM=openai="+r.bases.gemini,
		"BUDGETD_LISTEN="+b, "BUDGETD_SERVER=http://"+b, "BUDGETD_PROXY_LISTEN="+p, "BUDGETD_PROXY_BROKER=http://"+b)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	// The group is the shell and what it started; its number stays taken until the last has ended.
	t.Cleanup(func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) })
	failed := shell.Wait()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		t.Fatalf("%v:\n%s", failed, text)
	}
	return string(text), r
}

// checkFiveMinutes: the call arrived, was answered, and is in the demo's books.
func checkFiveMinutes(t *testing.T, out string, r *rig, answer string) {
	t.Helper()
	if calls := r.Calls(); len(calls) != 1 || calls[0].Status != 200 {
		t.Errorf("the provider was called %d times, want once: %+v", len(calls), calls)
	}
	for _, want := range []string{answer, `"limit":"tokens"`, `"output_tokens":"2"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s was not printed:\n%s", want, out)
		}
	}
}

// TestReadmeFiveMinutes runs the README's first screen as it is printed: the
// commands, the program with the SDK, and what tells the use.
func TestReadmeFiveMinutes(t *testing.T) {
	needNode(t)
	const heading = "Five minutes, any SDK"
	readme := page(t, "README.md")
	commands := block(t, readme, heading, "sh")
	checkout, commands, _ := strings.Cut(commands, "export PATH=$PWD/bin:$PATH\n")
	if !strings.HasPrefix(checkout, "git clone https://github.com/budgetd/budgetd ") || !strings.HasSuffix(checkout, "\nmake build && ") {
		t.Fatalf("the README begins with %q", checkout)
	}
	_, after, _ := strings.Cut(readme, "What it used, and what is left:\n")
	program := block(t, readme, heading, "js")
	const end = "END_OF_PROGRAM"
	out, r := runPrinted(t, commands+"\nnode --input-type=module <<'"+end+"'\n"+program+end+"\n"+block(t, "\n## "+heading+"\n"+after, heading, "sh"))
	checkFiveMinutes(t, out, r, "\nHello!\n")

	// Python's SDK is not run. It is told the same.
	told := regexp.MustCompile(`https?://[^"]+`)
	if python := block(t, readme, heading, "python"); told.FindString(python) != told.FindString(program) || !strings.Contains(python, `api_key="demo"`) {
		t.Errorf("Python is told %s, JavaScript %s", python, program)
	}
}

// TestProxyPageFiveMinutes runs the first commands of docs/proxy.md.
func TestProxyPageFiveMinutes(t *testing.T) {
	out, r := runPrinted(t, block(t, page(t, filepath.Join("docs", "proxy.md")), "Five minutes", "sh"))
	checkFiveMinutes(t, out, r, `"content":"Hello!"`)
}
