//go:build !linux

package proxy

import "errors"

func freeBind(int) error { return errors.ErrUnsupported }
