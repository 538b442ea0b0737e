-- Writes an adjustment, once an id.
INSERT INTO adjustments (id, body, account, limit_id, scope, period, meter, amount, at, made_by, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (id) DO NOTHING
