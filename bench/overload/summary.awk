# The table of `file-server`, from lines `clients kind rate`: medians and ranges in requests per second, and the medians
# as shares of the peak, which is the highest median without a limit. Runs in which requests failed have no rate.

{
    runs[$1, $2]++
    if ($3 != "failed") rates[$1, $2, ++count[$1, $2]] = $3
    if (!($1 in known)) { known[$1] = 1; order[++rows] = $1 }
}

# The median; sets `low` and `high`.
function median(clients, kind,   i, n, values) {
    n = count[clients, kind]
    for (i = 1; i <= n; i++) values[i] = rates[clients, kind, i]
    sort(values, n)
    low = values[1]; high = values[n]
    return n ? quantile(values, n, 0.5) : 0
}

function cell(clients, kind,   middle, text, failed) {
    failed = runs[clients, kind] - count[clients, kind]
    middle = median(clients, kind)
    if (count[clients, kind]) text = sprintf("%.0f (%.0f to %.0f), %.0f %%", middle, low, high, 100 * middle / peak)
    else text = "-"
    return failed ? text ", " failed " of " runs[clients, kind] " failed" : text
}

END {
    for (row = 1; row <= rows; row++) {
        middle = median(order[row], "fixed")
        if (middle > peak) peak = middle
    }
    if (!peak) { print "without a limit, no request was served in any run"; exit 1 }
    print "| clients | without a limit | with the law `knee` | from inside |"
    print "|--:|--:|--:|--:|"
    for (row = 1; row <= rows; row++) {
        stuck = (order[row], "stuck") in runs ? cell(order[row], "stuck") : ""
        printf "| %d | %s | %s | %s |\n", order[row], cell(order[row], "fixed"), cell(order[row], "knee"), stuck
    }
}
