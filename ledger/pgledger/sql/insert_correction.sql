-- Writes a correction, once an id.
INSERT INTO corrections (id, at, made_by, reason) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO NOTHING
