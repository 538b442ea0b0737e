-- Trees: a record that is in one has a table more, R_KIN.
--   parent, root  ids; '' for none, and for the first of a tree
--   depth         generations above, at most 8
--   taken         text, 1 for each hold that the parent pays, else 0
--   granted       of a parent: list of what each hold was granted (empty: not one yet)
--   open          of the first: ids of all that is open below, 16 bytes each, parents
--                 first, at most 256
-- tree.records are those that this script has read; who is dirty is written by flush.
-- (All is in one table, as a script may have 200 locals.)
function tree.kin_of(id)
  local r = tree.records[id]
  if r ~= nil then return r end
  local raw = call('HGET', A, 'r' .. id)
  r = raw and read_record(raw) or false
  tree.records[id] = r
  return r
end

-- known makes a record that was read elsewhere the one that trees see.
function tree.known(id, r)
  if r[R_KIN] then tree.records[id] = r end
  return r
end

function tree.is_open(r) return r and r[R_STATE] == HELD and r[R_EXPIRES] > now end

-- adoptable makes a record ready to have children. Its slot counts as granted.
function tree.adoptable(r)
  local k = r[R_KIN]
  if not k then
    k = {parent = '', root = '', depth = 0, taken = '', granted = {}, open = ''}
    r[R_KIN] = k
  end
  if #k.granted == 0 then
    local granted, n, plan = {}, 0, {unpack_msg(r[R_PLAN])}
    for j = 1, #plan, STRIDE do
      n = n + 1
      granted[n] = plan[j + 3]
    end
    k.granted = granted
  end
  return k
end

function tree.is_taken(k, n) return k and string.byte(k.taken, n) == 49 end

-- fund_at returns the index, and the number, of the parent's hold that pays for one.
function tree.fund_at(granted, parent_plan, kind, where, ref, period)
  if where == REMOTE then return end
  local n = 0
  for i = 1, #parent_plan, STRIDE do
    n = n + 1
    if parent_plan[i + 2] == ref and parent_plan[i] == kind and parent_plan[i + 1] == where and
        (kind ~= KIND_QUOTA or parent_plan[i + 6] == period) and (granted and granted[n] or not granted and parent_plan[i + 3]) > 0 then
      return i, n
    end
  end
end

-- payer returns a function that says what the envelope of a record pays where
-- hold n, at j of the plan, comes to cost after instead of before (negative when it
-- gets back), and one that writes the envelope down; nil without an open one.
function tree.payer(r, plan)
  local k = r[R_KIN]
  if not k or k.parent == '' then return end
  local p = tree.kin_of(k.parent)
  if not tree.is_open(p) then return end
  local p_plan
  local function pay(j, n, before, after)
    if before == after or plan[j] == KIND_SLOTS or plan[j + 1] == REMOTE or not tree.is_taken(k, n) then return 0 end
    local granted = tree.adoptable(p).granted
    p_plan = p_plan or {unpack_msg(p[R_PLAN])}
    p.dirty = true
    local i, m = tree.fund_at(granted, p_plan, plan[j], plan[j + 1], plan[j + 2], plan[j + 6])
    if not i then return 0 end
    local part, left = after - before, p_plan[i + 3]
    if part > left then part = left end
    if part < left - granted[m] then part = left - granted[m] end
    p_plan[i + 3] = left - part
    return part
  end
  return pay, function()
    if p_plan and #p_plan > 0 then p[R_PLAN] = pack(unpack_all(p_plan)) end
  end
end

-- depart takes a held record, which is about to end, out of its tree, and ends the
-- leases of all that is open below it.
function tree.depart(id, r)
  local k = r[R_KIN]
  if not k or r[R_STATE] ~= HELD then return end
  local root = r
  if k.root ~= '' then
    root = tree.kin_of(k.root)
    if not root or not root[R_KIN] then return end
    local open = root[R_KIN].open
    for i = 1, #open, 16 do
      if string.sub(open, i, i + 15) == id then
        root[R_KIN].open = string.sub(open, 1, i - 1) .. string.sub(open, i + 16)
        root.dirty = true
        break
      end
    end
  end
  if r[R_EXPIRES] <= now then return end
  local below, open = {[id] = true}, root[R_KIN].open
  for i = 1, #open, 16 do
    local child = string.sub(open, i, i + 15)
    local c = tree.kin_of(child)
    if c and c[R_KIN] and below[c[R_KIN].parent] then
      below[child] = true
      if tree.is_open(c) then
        c[R_RETENTION], c[R_EXPIRES], c.dirty = c[R_RETENTION] + c[R_EXPIRES] - now, now, true
        schedule(child, now, false)
        local plan = {unpack_msg(c[R_PLAN])}
        for j = 1, #plan, STRIDE do
          if plan[j] == KIND_SLOTS and plan[j + 1] ~= REMOTE and plan[j + 3] > 0 then free_slot(plan[j + 2], child) end
        end
      end
    end
  end
end

-- join makes an open record a child. Its lease ends with the parent's at the latest;
-- what it is remembered for grows by what the lease loses.
function tree.join(id, r, parent_id, p, taken)
  local k = tree.adoptable(p)
  local root_id = k.root ~= '' and k.root or parent_id
  local root = root_id == parent_id and p or tree.kin_of(root_id)
  if root and root[R_KIN] then
    root[R_KIN].open = root[R_KIN].open .. id
    root.dirty = true
  end
  tree.records[parent_id], p.dirty = p, true
  r[R_KIN] = {parent = parent_id, root = root_id, depth = k.depth + 1, taken = taken, granted = {}, open = ''}
end

-- is_full says whether the parent's tree takes no child more.
function tree.is_full(p)
  local k = p[R_KIN]
  if not k then return false end
  if k.depth >= 8 then return true end
  local root = k.root == '' and p or tree.kin_of(k.root)
  return root and root[R_KIN] and #root[R_KIN].open >= 16 * 256
end

function tree.flush_kin()
  for id, r in pairs(tree.records) do
    if r and r.dirty and r[R_CONFIRMED] == 0 then put('r' .. id, write_record(r)) end
  end
end
