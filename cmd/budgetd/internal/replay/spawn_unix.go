//go:build unix && !linux

package replay

import "syscall"

// childAttributes puts a child in a process group of its own, so that an
// interrupt at the terminal reaches the driver alone, which then ends its
// children in order. There is no parent-death signal here: a worker also ends
// with its input, a broker whose driver was killed is to be ended by hand.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
