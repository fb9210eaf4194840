# The table of `dynamics`, from lines `repeat front clients` with eight figures for each of the phases, as phases.awk
# prints them: medians and ranges over the repeats. Shares are of the rate in the whole phase of the fixed limit for
# which this has the highest median, in the same repeat. A line `repeat front clients wrong: reason` has no figures.
# Exits with 1 if a run went wrong.

/^#/ || $1 > repeats { next }

$4 == "wrong:" {
    printf "Repeat %d of %s went wrong: %s\n\n", $1, $2, substr($0, index($0, ": ") + 2)
    failed = 1
    next
}

{ for (column = 4; column <= NF; column++) cell[$2, $1, column - 3] = $column }

function collect(front, column,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if ((front, repeat, column) in cell) values[++n] = cell[front, repeat, column]
    return n
}

function median(front, column,   n) {
    n = collect(front, column)
    sort(values, n)
    return n ? quantile(values, n, 0.5) : 0
}

# As a share of another rate of the same repeat.
function share(front, column, base, whole,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if (((front, repeat, column) in cell) && cell[base, repeat, whole] > 0)
            values[++n] = cell[front, repeat, column] / cell[base, repeat, whole]
    return summary(n, 2)
}

# The median of the medians, and the range from the lowest 10th to the highest 90th percentile.
function limits(front, column,   low, high, n) {
    n = collect(front, column + 1)
    sort(values, n)
    low = values[1]
    n = collect(front, column + 2)
    sort(values, n)
    high = values[n]
    return sprintf("%d (%d to %d)", median(front, column), low, high)
}

END {
    print "| phase | front | ended per second | of the best fixed limit: 0 to 5 s | 5 to 10 s | from 10 s | lowest 2 s | limit |"
    print "|---|---|---|---|---|---|---|---|"
    names = split(phases, phase, " ")
    rows = split(fronts, front, " ")
    for (p = 1; p <= names; p++) {
        whole = 8 * p - 7
        best = ""
        for (i = 1; i <= rows; i++)
            if (front[i] ~ /[0-9]$/ && (!best || median(front[i], whole) > median(best, whole))) best = front[i]
        for (i = 1; i <= rows; i++) {
            printf "| %s | %s | %s", phase[p], front[i], summary(collect(front[i], whole), 0)
            for (column = whole + 1; column <= whole + 4; column++)
                printf " | %s", share(front[i], column, best, whole)
            printf " | %s |\n", limits(front[i], whole + 5)
        }
    }
    exit failed
}
