# The table of `dynamics`, from lines `repeat front clients` with the eight figures of phases.awk for each of `phases`.
# Shares are of what the fixed limit with the highest median commits per second of the whole phase, in the same repeat.
# The limit is the median over the repeats of its median, with the lowest 10th and the highest 90th percentile. The rows
# are in the order of lines `front clients`, in the environment variable `runs`. Exits with 1 if a run went wrong.

function limits(row, column,   low, high, n) {
    n = collect(row, column + 1, 1)
    if (!n) return "-"
    sort(values, n)
    low = values[1]
    n = collect(row, column + 2, 1)
    sort(values, n)
    high = values[n]
    return sprintf("%d (%d to %d)", median(row, column), low, high)
}

END {
    print "| phase | front | committed per second | of the best fixed limit: 0 to 5 s | 5 to 10 s | from 10 s " \
        "| lowest 2 s | limit (10th to 90th percentile) |"
    print "|---|---|---|---|---|---|---|---|"
    names = split(phases, name, " ")
    rows = split(ENVIRON["runs"], row, "\n")
    for (p = 1; p <= names; p++) {
        whole = 4 + 8 * (p - 1)
        best = ""
        for (i = 1; i <= rows; i++)
            if (row[i] ~ /^guard-[0-9]/ && (!best || median(row[i], whole) > median(best, whole))) best = row[i]
        for (i = 1; i <= rows; i++) {
            split(row[i], part, " ")
            printf "| %s | %s | %s", name[p], part[1], absolute(row[i], whole, 1, 0)
            for (column = whole + 1; column <= whole + 4; column++)
                printf " | %s", share(row[i], column, best, whole)
            printf " | %s |\n", limits(row[i], whole + 5)
        }
    }
    exit failed
}
