package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Listen takes a port. The error names the setting that the address is of, and
// says what to do about it.
func Listen(ctx context.Context, setting, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	flag := "--" + strings.ReplaceAll(setting, "_", "-")
	advice := fmt.Sprintf("give it an address of this machine with %s", flag)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = fmt.Sprintf("something listens there already, perhaps another of its kind; end it, or give this one another address with %s", flag)
	case errors.Is(err, syscall.EACCES):
		advice = fmt.Sprintf("this user may not listen there; give it a port from 1024 on with %s", flag)
	}
	cause := err
	var number syscall.Errno
	if errors.As(err, &number) {
		cause = number
	}
	return nil, fmt.Errorf("%s: %s: %w; %s", setting, address, cause, advice)
}
