package replay

import "syscall"

// childAttributes puts a child in a process group of its own, so that an
// interrupt at the terminal reaches the driver alone, which then ends its
// children in order; and has the child killed if the driver is.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
