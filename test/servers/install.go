package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Names of the environment variables that name servers from outside.
const (
	EnvRedis        = "BUDGETD_TEST_REDIS"
	EnvRedisCluster = "BUDGETD_TEST_REDIS_CLUSTER"
	EnvPostgres     = "BUDGETD_TEST_POSTGRES"
)

// missing is the error for a server that is not installed. env is empty where
// no server from outside will do.
func missing(binary, env string) error {
	instead := "This test kills or restarts its server, so one from outside will not do."
	if env != "" {
		instead = "Or set " + env + " to a server of yours."
	}
	return fmt.Errorf(`%s is not installed, and this test needs a real one.
`+"`make test`"+` installs it on Debian and Ubuntu. By hand:
  Debian, Ubuntu:  apt-get install redis-server postgresql
  macOS:           brew install redis postgresql
%s`, binary, instead)
}

func redisBinary(env string) (string, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return "", missing("redis-server", env)
	}
	return bin, nil
}

// postgresHomes are where packages put PostgreSQL's server, outside PATH.
var postgresHomes = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // the PostgreSQL project's RPMs
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
}

var majorVersion = regexp.MustCompile(`postgresql/(\d+)/|pgsql-(\d+)/|postgresql@(\d+)/`)

// postgresBinaries finds initdb and postgres: those in PATH, else the newest
// that a package has put elsewhere.
func postgresBinaries(env string) (initdb, postgres string, err error) {
	initdb, initdbErr := exec.LookPath("initdb")
	postgres, postgresErr := exec.LookPath("postgres")
	if initdbErr == nil && postgresErr == nil {
		return initdb, postgres, nil
	}
	var found []string
	for _, pattern := range postgresHomes {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", "", err
		}
		for _, dir := range dirs {
			if isFile(filepath.Join(dir, "initdb")) && isFile(filepath.Join(dir, "postgres")) {
				found = append(found, dir)
			}
		}
	}
	if len(found) == 0 {
		return "", "", missing("PostgreSQL (initdb and postgres)", env)
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return versionOf(a) - versionOf(b) })
	return filepath.Join(newest, "initdb"), filepath.Join(newest, "postgres"), nil
}

func versionOf(dir string) int {
	for _, group := range majorVersion.FindStringSubmatch(dir) {
		if n, err := strconv.Atoi(group); err == nil {
			return n
		}
	}
	return 0
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
