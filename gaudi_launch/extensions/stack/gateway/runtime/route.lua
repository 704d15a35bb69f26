-- Find the model of a request, and what its conversation begins with.
--
-- HAProxy's own json_query stops at 20 levels and takes the first of two equal names; engines
-- (Python's json) take the last one. Sets txn.model and txn.prefix. An incomplete or invalid body
-- sets neither.

-- of a long beginning these bytes and the length decide: enough to tell conversations apart
local PREFIX_BYTES = 4096
local PROMPT_BYTES = 1024
local MOST_NAME = 1024

local QUOTE, BACKSLASH, COLON = 34, 92, 58
local OPEN = { [123] = true, [91] = true }

-- Return the index of the quote that ends the string which begins at this quote, or nil.
local function string_end(body, at)
    local position = at + 1
    while true do
        local stop = string.find(body, '"', position, true)
        if stop == nil then
            return nil
        end
        local before = stop - 1
        while string.byte(body, before) == BACKSLASH do
            before = before - 1
        end
        -- an even number of backslashes: the quote is not escaped
        if (stop - 1 - before) % 2 == 0 then
            return stop
        end
        position = stop + 1
    end
end

local SHORT = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

-- Return the text of a JSON string without its quotes; letters beyond ASCII in \u stay as they are.
local function plain(text)
    if not string.find(text, "\\", 1, true) then
        return text
    end
    text = string.gsub(text, "\\u00([0-7]%x)", function(code)
        local letter = string.char(tonumber(code, 16))
        return letter == "\\" and "\\\\" or letter
    end)
    return (string.gsub(text, "\\(.)", function(letter)
        return SHORT[letter] or letter
    end))
end

-- Return the end of the first message of a user, the beginning of what later turns repeat.
local function first_user_end(body, at, stop)
    local depth, role, position = 0, nil, at
    while true do
        local found = string.find(body, '["{}%[%]]', position)
        if found == nil or found > stop then
            return stop
        end
        local byte = string.byte(body, found)
        if byte == QUOTE then
            local close = string_end(body, found)
            if close == nil then
                return stop
            end
            if depth == 2 and string.sub(body, found, close) == '"role"' then
                role = string.match(body, '^%s*:%s*"(%a+)"', close + 1)
            end
            position = close + 1
        else
            depth = depth + (OPEN[byte] and 1 or -1)
            if depth == 1 and not OPEN[byte] and role == "user" then
                return found
            end
            position = found + 1
        end
    end
end

-- Return the last 4096 bytes of a beginning, with its length.
local function shortened(body, at, stop)
    local from = math.max(at, stop - PREFIX_BYTES + 1)
    return (stop - at) .. ":" .. string.sub(body, from, stop)
end

-- Return the model and the prefix of a JSON object; nil where it is not complete.
local function from_json(body)
    local start = string.find(body, "%S")
    if start == nil or string.byte(body, start) ~= 123 then
        return nil
    end
    local depth, position = 0, start
    local model, name, messages, prompt
    while true do
        local found = string.find(body, '["{}%[%]]', position)
        if found == nil then
            return nil
        end
        local byte = string.byte(body, found)
        if byte == QUOTE then
            local close = string_end(body, found)
            if close == nil then
                return nil
            end
            if depth == 1 then
                local after = string.find(body, "%S", close + 1)
                if after ~= nil and string.byte(body, after) == COLON then
                    name = plain(string.sub(body, found + 1, math.min(close - 1, found + MOST_NAME)))
                    if name == "model" then
                        model = nil
                    end
                elseif name == "model" then
                    model = plain(string.sub(body, found + 1, math.min(close - 1, found + MOST_NAME)))
                    name = nil
                elseif name == "prompt" then
                    prompt = string.sub(body, found, math.min(close, found + PROMPT_BYTES))
                    name = nil
                end
            end
            position = close + 1
        else
            if OPEN[byte] then
                depth = depth + 1
                if depth == 2 and name == "messages" then
                    messages = found
                end
                if depth == 2 and name == "prompt" then
                    prompt = string.sub(body, found, found + PROMPT_BYTES)
                end
            else
                depth = depth - 1
                if depth == 1 and name == "messages" and messages ~= nil then
                    prompt = shortened(body, messages, first_user_end(body, messages, found))
                end
                if depth == 1 then
                    name = nil
                end
                if depth == 0 then
                    return model, prompt
                end
            end
            position = found + 1
        end
    end
end

-- Return the field "model" of a form (audio is uploaded as one), or nil.
local function from_form(body, boundary)
    local position = 1
    while true do
        local from, to = string.find(body, "--" .. boundary, position, true)
        if from == nil then
            return nil
        end
        local head = string.find(body, "\r\n\r\n", to, true)
        if head == nil then
            return nil
        end
        if string.find(string.sub(body, to, head), '[; ]name="model"') then
            return string.match(body, "^([^\r\n]*)\r\n", head + 4)
        end
        position = head + 4
    end
end

local function route(txn)
    local body = txn.f:req_body() or ""
    local kind = txn.f:req_hdr("content-type") or ""
    local boundary = string.match(kind, '^multipart/form%-data.*boundary="?([^";]+)')
    local model, prefix
    if boundary ~= nil then
        model = from_form(body, boundary)
    else
        model, prefix = from_json(body)
    end
    if model ~= nil then
        txn:set_var("txn.model", model)
    end
    if prefix ~= nil then
        txn:set_var("txn.prefix", prefix)
    end
end

core.register_action("route", { "http-req" }, route, 0)
