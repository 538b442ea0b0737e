package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// maxPricesBytes bounds the file of prices.
const maxPricesBytes = 4 << 20

// files are what the configuration names beside servers.
type files struct {
	policy *policyfile.Document // nil for none
	prices *estimator.Overrides // nil for none
}

// CheckFiles reads the policy, the prices and the certificate that the
// configuration names, as a start does before it touches anything. The error
// joins a [*config.Error] for each that is faulty.
func CheckFiles(c config.Config) error {
	_, err := readFiles(c)
	return err
}

func readFiles(c config.Config) (files, error) {
	var read files
	var faults []error
	fault := func(setting, value string, err error) {
		faults = append(faults, &config.Error{Setting: setting, Value: value, Problem: err.Error()})
	}
	if c.Policy != "" {
		text, err := readBounded(c.Policy, policyfile.MaxBytes)
		if err == nil {
			if read.policy, err = policyfile.Parse(text); err != nil {
				err = fmt.Errorf("is faulty:\n%w", err)
			}
		}
		if err != nil {
			fault("policy", c.Policy, err)
		}
	}
	if c.Prices != "" {
		text, err := readBounded(c.Prices, maxPricesBytes)
		if err == nil {
			var overrides estimator.Overrides
			overrides, err = estimator.ParseOverrides(text)
			read.prices = &overrides
		}
		if err != nil {
			fault("prices", c.Prices, err)
		}
	}
	if c.TLSCert != "" && c.TLSKey != "" {
		if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
			fault("tls_cert", c.TLSCert, fmt.Errorf("and tls_key %s can't be used: %w", c.TLSKey, err))
		}
	}
	return read, errors.Join(faults...)
}

// readBounded reads a file that is no larger than most bytes.
func readBounded(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.New("can't be read: " + innermost(err))
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, errors.New("can't be read: " + innermost(err))
	case int64(len(text)) > most:
		return nil, fmt.Errorf("is over %d bytes", most)
	}
	return text, nil
}
