package alerts

import (
	"encoding/json"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// MessageType is the type of the messages that a webhook gets.
const MessageType = "quota.alert"

// message is what is posted: type, timestamp and data as the Standard Webhooks
// convention advises. Fields are only ever added. It is a function of the
// event, so that every attempt sends the same bytes.
type message struct {
	Type      string      `json:"type"`
	Timestamp time.Time   `json:"timestamp"` // RaisedAt
	Data      messageData `json:"data"`
}

// messageData writes amounts as text, as the API does: they have 64 bits, and
// many readers of JSON keep 53.
type messageData struct {
	Account  string       `json:"account"`
	Limit    string       `json:"limit"`
	LimitID  string       `json:"limit_id"`
	Scope    string       `json:"scope"`
	Meter    quota.Meter  `json:"meter"`
	Period   string       `json:"period"`
	Percent  int          `json:"percent"`
	Used     quota.Amount `json:"used,string"`
	Amount   quota.Amount `json:"amount,string"`
	RaisedAt time.Time    `json:"raised_at"`
}

func (e *Event) message() ([]byte, error) {
	return json.Marshal(message{
		Type: MessageType, Timestamp: e.RaisedAt,
		Data: messageData{
			Account: e.Account, Limit: e.LimitName, LimitID: e.Limit, Scope: e.Scope, Meter: e.Meter, Period: e.Period,
			Percent: e.Percent, Used: e.Used, Amount: e.Amount, RaisedAt: e.RaisedAt,
		},
	})
}
