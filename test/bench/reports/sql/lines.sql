-- The five lines of each closing: a quota and four totals. What was held is the
-- input and 8,000 tokens of output. usage_row has the ids of the rows.
CREATE VIEW sample_line AS
SELECT s.n, s.minted, s.month, s.account, s.reservation, s.label_set, l.sequence, l.limit_id, l.meter, l.amount, l.held, u.id AS usage_id
  FROM sample s
       CROSS JOIN LATERAL (VALUES (1, 'spend', 'cost', s.cost, 0),
                       (2, '', 'cost', s.cost, 150 * s.input + 600 * 8000),
                       (3, '', 'input_tokens', s.input, s.input),
                       (4, '', 'output_tokens', s.output, 8000),
                       (5, '', 'tokens', s.input + s.output, s.input + 8000)) AS l (sequence, limit_id, meter, amount, held)
  JOIN usage_row u ON u.account = s.account AND u.month = s.month AND u.limit_id = l.limit_id AND u.meter = l.meter
