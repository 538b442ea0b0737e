package budget

// Key lets tests reach the same account by another way.
func (c *Client) Key() string { return c.key }
