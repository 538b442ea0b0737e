package servers_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/servers"
)

// victimEnv makes TestVictim, in a process of its own, start servers and wait
// to be killed.
const victimEnv = "BUDGETD_TEST_SERVERS_VICTIM"

func TestServersGoWithAKilledTestProcess(t *testing.T) {
	tmp := openTemp(t)
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.v")
	victim.Env = append(withoutOutside(os.Environ()), victimEnv+"=1", "TMPDIR="+tmp)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	said := bufio.NewScanner(out)
	for said.Scan() && said.Text() != "started" {
		if word, ok := strings.CutPrefix(said.Text(), "pid "); ok {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) != 5 {
		t.Fatalf("the victim started processes %v, want 5", pids)
	}
	for _, pid := range pids {
		if !alive(pid) {
			t.Fatalf("process %d is not running", pid)
		}
	}
	if dirs := leftIn(t, tmp); len(dirs) != 1 {
		t.Fatalf("directories of a running process: %v", dirs)
	}

	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Wait(); err == nil {
		t.Fatal("the victim ended by itself")
	}
	within(t, 30*time.Second, "the servers end", func() bool {
		for _, pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	within(t, 30*time.Second, "the directory is removed", func() bool { return len(leftIn(t, tmp)) == 0 })
}

// TestVictim starts one server of each kind and waits to be killed. Run with
// the others it has nothing to do: its process is the test.
func TestVictim(t *testing.T) {
	if os.Getenv(victimEnv) == "" {
		return
	}
	fmt.Println("pid", servers.NewRedis(t).PID())
	for _, node := range servers.NewRedisCluster(t).Nodes {
		fmt.Println("pid", node.PID())
	}
	fmt.Println("pid", servers.NewPostgres(t).PID())
	fmt.Println("started")
	select {}
}

func TestServersOfATestEndWithIt(t *testing.T) {
	var pids []int
	t.Run("owner", func(t *testing.T) {
		pids = append(pids, servers.NewRedis(t).PID(), servers.NewPostgres(t).PID())
		for _, node := range servers.NewRedisCluster(t).Nodes {
			pids = append(pids, node.PID())
		}
	})
	for _, pid := range pids {
		if pid == 0 || alive(pid) {
			t.Errorf("process %d outlived its test", pid)
		}
	}
}

func TestWithoutBinariesATestFailsAndSaysWhatToInstall(t *testing.T) {
	if os.Getenv(victimEnv) != "" {
		return
	}
	for _, c := range []struct{ run, want string }{
		{"TestSharedRedisIsOneServer", "BUDGETD_TEST_REDIS "},
		{"TestSharedRedisCluster", "BUDGETD_TEST_REDIS_CLUSTER "},
		{"TestRedisFreezeAndThaw", "one from outside will not do"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+c.run+"$")
		cmd.Env = append(withoutOutside(os.Environ()), "PATH=/nonexistent")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("--- FAIL: "+c.run)) {
			t.Fatalf("%s passed without redis-server:\n%s", c.run, out)
		}
		for _, want := range []string{"redis-server is not installed", "apt-get install redis-server postgresql", "make test", c.want} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("%s: no %q in:\n%s", c.run, want, out)
			}
		}
	}
}

func TestServersFromOutside(t *testing.T) {
	r, cluster, pg := servers.NewRedis(t), servers.NewRedisCluster(t), servers.NewPostgres(t)
	// A process that was killed before it could drop its database.
	execute(t, pg.DSN(), "CREATE DATABASE budgetd_test_0123456789ab_template")
	execute(t, pg.DSN(), "CREATE DATABASE budgetd_test_of_somebody_else")

	cmd := exec.Command(os.Args[0], "-test.v",
		"-test.run=^(TestSharedRedisIsOneServer|TestSharedRedisCluster|TestFreshDatabaseFromMigratesOnce|TestFreshDatabasesAreIsolatedAndDropped)$")
	cmd.Env = append(withoutOutside(os.Environ()), "PATH=/nonexistent",
		servers.EnvRedis+"="+r.URL(),
		servers.EnvRedisCluster+"="+strings.Join(cluster.Addrs(), ", "),
		servers.EnvPostgres+"="+pg.DSN())
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(out, []byte("--- PASS: Test")) < 4 {
		t.Fatalf("with servers from outside: %v\n%s", err, out)
	}
	const left = "SELECT string_agg(datname, ' ') FROM pg_database WHERE datname LIKE 'budgetd\\_test\\_%'"
	if got := query[string](t, pg.DSN(), left); got != "budgetd_test_of_somebody_else" {
		t.Errorf("databases after the run: %s", got)
	}
	if n := r.Client(t).Info(t.Context(), "commandstats").Val(); !strings.Contains(n, "cmdstat_del:calls=1,") {
		t.Errorf("the tests did not use the server from outside:\n%s", n)
	}
}

func TestOutsideServerThatIsAwayIsAnError(t *testing.T) {
	r := servers.NewRedis(t)
	r.Kill()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSharedRedisIsOneServer$")
	cmd.Env = append(withoutOutside(os.Environ()), servers.EnvRedis+"="+r.URL())
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte(servers.EnvRedis+": ping "+r.Addr())) {
		t.Fatalf("error %v:\n%s", err, out)
	}
}

// withoutOutside drops the variables that name servers from outside.
func withoutOutside(env []string) []string {
	var kept []string
	for _, pair := range env {
		if !strings.HasPrefix(pair, "BUDGETD_TEST_") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// openTemp makes a temporary directory that the user of PostgreSQL can reach.
func openTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "budgetd-test-servers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func leftIn(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "budgetd-test-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// alive says whether the process runs. One that has ended and that nobody has
// waited for, as in a container without an init, is not alive.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err) || !procExists()
	}
	_, rest, ok := bytes.Cut(stat, []byte(") "))
	return !ok || rest[0] != 'Z'
}

func procExists() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// userOf returns the user that a process runs as, if there is a /proc.
func userOf(t *testing.T, pid int) (uid int, ok bool) {
	t.Helper()
	if !procExists() {
		return 0, false
	}
	var info syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &info); err != nil {
		t.Fatal(err)
	}
	return int(info.Uid), true
}
