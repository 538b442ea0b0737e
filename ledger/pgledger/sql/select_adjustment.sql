-- What an adjustment's id stands for.
SELECT body, account, limit_id, scope, period, meter FROM adjustments WHERE id = $1
