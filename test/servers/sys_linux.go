package servers

import "syscall"

// attributes of a server's process: a process group of its own, so that an
// interrupt at the terminal ends the tests and not the servers under them, and
// a signal when the thread that started it ends. Go sets the signal after the
// change of user, which would clear it.
func attributes(user *syscall.Credential, whenParentDies syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: user, Pdeathsig: whenParentDies}
}
