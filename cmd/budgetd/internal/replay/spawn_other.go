//go:build !unix

package replay

import "syscall"

// childAttributes are the system's own.
func childAttributes() *syscall.SysProcAttr { return nil }
