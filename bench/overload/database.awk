# The table of `database`, from lines `repeat front clients committed failed mean p50 p99`, of which rates are per second
# and times in us: medians and ranges over the repeats. Ratios are of runs in the same repeat: to the highest rate
# without a front (`peak`), and to that with as many clients.

/^#/ || $1 > repeats { next }

{
    row = $2 " " $3
    if (!(row in known)) { known[row] = 1; order[++rows] = row; front[row] = $2; clients[row] = $3 }
    for (column = 4; column <= NF; column++) cell[row, $1, column] = $column
    if ($2 == "direct" && $4 > peak[$1]) peak[$1] = $4
}

# `median (lowest to highest)` of what values[1..n] contains.
function summary(n, digits,   form) {
    if (!n) return "-"
    sort(values, n)
    form = "%." digits "f"
    if (n == 1) return sprintf(form, values[1])
    return sprintf(form " (" form " to " form ")", quantile(values, n, 0.5), values[1], values[n])
}

# Of a column, in another unit.
function absolute(row, column, unit, digits,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if ((row, repeat, column) in cell) values[++n] = cell[row, repeat, column] / unit
    return summary(n, digits)
}

# Of the difference from the time without a front.
function added(row, column,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if (((row, repeat, column) in cell) && (("direct 1", repeat, column) in cell))
            values[++n] = cell[row, repeat, column] - cell["direct 1", repeat, column]
    return summary(n, 1)
}

# Of the rate, as a share of the peak, or of the rate without a front.
function share(row, base,   repeat, n, whole, direct) {
    direct = "direct " clients[row]
    for (repeat = 1; repeat <= repeats; repeat++) {
        whole = base == "peak" ? peak[repeat] : (direct, repeat, 4) in cell ? cell[direct, repeat, 4] : 0
        if (((row, repeat, 4) in cell) && whole) values[++n] = cell[row, repeat, 4] / whole
    }
    return summary(n, 2)
}

END {
    if (table == "latency") {
        print "| | p50 (us) | mean (us) | added to p50 (us) | added to mean (us) |"
        print "|---|---|---|---|---|"
        for (i = 1; i <= rows; i++) {
            row = order[i]
            printf "| %s | %s | %s", front[row], absolute(row, 7, 1, 1), absolute(row, 6, 1, 1)
            if (front[row] == "direct") print " | | |"
            else printf " | %s | %s |\n", added(row, 7), added(row, 6)
        }
        exit
    }
    print "| | clients | committed per second | of the peak | of that without a front | failed per second | p99 (ms) |"
    print "|---|--:|---|---|---|---|---|"
    for (i = 1; i <= rows; i++) {
        row = order[i]
        printf "| %s | %d | %s | %s", front[row], clients[row], absolute(row, 4, 1, 0), share(row, "peak")
        printf " | %s", front[row] == "direct" ? "" : share(row, "direct")
        printf " | %s | %s |\n", absolute(row, 5, 1, 1), absolute(row, 8, 1000, 1)
    }
}
