//go:build !linux

package servers

import "syscall"

// attributes of a server's process: a process group of its own, so that an
// interrupt at the terminal ends the tests and not the servers under them.
// Without a parent-death signal the watching process alone ends the servers of
// a test process that was killed.
func attributes(user *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: user}
}
