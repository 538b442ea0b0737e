-- What a correction's id stands for.
SELECT at, made_by, reason FROM corrections WHERE id = $1
