package forwardauth

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// maxQueryBytes bounds the query.
const maxQueryBytes = 8 << 10

// request is what is asked.
type request struct {
	spend   reservation.Spend
	refused int // the status of a refusal
}

// read turns a request into what it asks. Labels are read from the query, from
// headers that it names, and from X-Budget- headers, in this order.
func read(r *http.Request) (request, error) {
	read := request{
		spend:   reservation.Spend{Labels: map[string]string{}, Amounts: quota.Amounts{}},
		refused: http.StatusTooManyRequests,
	}
	if n := len(r.URL.RawQuery); n > maxQueryBytes {
		return read, rpc.Invalid("query", fmt.Sprintf("has %d bytes", n), fmt.Sprintf("at most %d", maxQueryBytes))
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return read, rpc.Invalid("query", "can't be read", "percent-encoded name=value pairs")
	}
	useHeaders := true
	for name, values := range query {
		if len(values) > 1 {
			return read, rpc.Invalid("query", fmt.Sprintf("%.64q is stated %d times", name, len(values)), "once")
		}
		value := values[0]
		kind, of, _ := strings.Cut(name, ".")
		switch {
		case name == "account":
			read.spend.Account = value
		case name == "priority":
			if read.spend.Priority, err = rpc.Priority(name, value); err != nil {
				return read, err
			}
		case name == "refused":
			if value != "403" && value != "429" {
				return read, rpc.Invalid("refused", fmt.Sprintf("%.64q is no status of a refusal", value), "403 or 429")
			}
			read.refused, _ = strconv.Atoi(value)
		case name == "headers":
			if value != "ignore" && value != "read" {
				return read, rpc.Invalid("headers", fmt.Sprintf("%.64q is neither", value), "read or ignore")
			}
			useHeaders = value == "read"
		case kind == "label" && of != "":
			read.spend.Labels[of] = rpc.LabelValue(of, value)
		case kind == "label-from" && of != "":
			if query.Has("label." + of) {
				return read, rpc.Invalid("query", fmt.Sprintf("label %.64q is stated in two ways", of), "label or label-from")
			}
			if rpc.CarriesCredential(value) {
				return read, rpc.Invalid(name, fmt.Sprintf("the header %.64q carries a credential, and labels are kept in the ledger and shown in reports", value), "a header that names the client and opens nothing, such as one that the gateway sets after it checked the credential")
			}
			read.spend.Labels[of] = rpc.LabelValue(of, withoutQuery(value, r.Header.Get(value)))
		case kind == "amount" && of != "":
			if err := read.amount(name, of, value); err != nil {
				return read, err
			}
		default:
			return read, rpc.Invalid("query", fmt.Sprintf("%.64q is unknown", name), "account, label.NAME, label-from.NAME, amount.METER, priority, headers and refused")
		}
	}
	if useHeaders {
		err = read.headers(r.Header, query)
	}
	return read, err
}

// headers adds what the X-Budget- headers state beyond the query.
func (r *request) headers(header http.Header, query url.Values) error {
	for name, values := range header {
		kind, ok := strings.CutPrefix(name, "X-Budget-")
		if !ok || name == keyHeader {
			continue
		}
		if len(values) > 1 {
			return rpc.Invalid(name, fmt.Sprintf("is stated %d times", len(values)), "once")
		}
		value := values[0]
		kind, of, _ := strings.Cut(kind, "-")
		of = strings.ToLower(of)
		switch {
		case kind == "Account" && of == "":
			if !query.Has("account") {
				r.spend.Account = value
			}
		case kind == "Priority" && of == "":
			if query.Has("priority") {
				continue
			}
			var err error
			if r.spend.Priority, err = rpc.Priority(name, value); err != nil {
				return err
			}
		case name == "X-Budget-Max-Wait":
			return rpc.Invalid(name, "is stated, and a Charge never waits", "no such header; calls that wait are for Reserve, the Go client and the proxy")
		case kind == "Label" && of != "":
			if _, stated := r.spend.Labels[of]; !stated {
				r.spend.Labels[of] = rpc.LabelValue(of, value)
			}
		case kind == "Amount" && of != "":
			meter := strings.ReplaceAll(of, "-", "_") // many proxies drop headers with a "_"
			if query.Has("amount." + meter) {
				continue
			}
			if err := r.amount(name, meter, value); err != nil {
				return err
			}
		default:
			return rpc.Invalid(name, "is unknown", "X-Budget-Account, X-Budget-Label-NAME, X-Budget-Amount-METER, X-Budget-Priority and X-Budget-Key")
		}
	}
	return nil
}

// amount reads what is asked of one meter. Nothing is charged for 0.
func (r *request) amount(field, meter, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > int64(quota.MaxAmount) {
		return rpc.Invalid(field, fmt.Sprintf("%.64q is no amount", text), fmt.Sprintf("0 to %d", quota.MaxAmount))
	}
	if meter == string(quota.MeterInFlight) {
		return rpc.Invalid(field, "slots are given back when a call ends, and a gateway does not tell when", "another meter; guard slots with Reserve and Refund")
	}
	if n > 0 {
		r.spend.Amounts[quota.Meter(meter)] = quota.Amount(n)
	}
	return nil
}

// addressHeaders tell the address that a client asked for, whose query may carry
// its key (Gemini's does), and has too many values to count by.
var addressHeaders = []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Url", "Referer"}

// withoutQuery is a header's value, of an address without its query.
func withoutQuery(header, value string) string {
	if slices.Contains(addressHeaders, http.CanonicalHeaderKey(header)) {
		value, _, _ = strings.Cut(value, "?")
	}
	return value
}
