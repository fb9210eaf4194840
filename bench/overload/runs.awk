# What the tables of `database` and `dynamics` share: reads the lines `repeat front clients figures` of the runs, in
# which a row is `front clients`, and has medians and ranges over the repeats. A line `repeat front clients wrong:
# reason` has no figures; then, `failed` is 1.

/^#/ || $1 > repeats { next }

$4 == "wrong:" {
    printf "Repeat %d of %s with %d clients went wrong: %s\n\n", $1, $2, $3, substr($0, index($0, ": ") + 2)
    failed = 1
    next
}

{ for (column = 4; column <= NF; column++) cell[$2 " " $3, $1, column] = $column }

# `median (lowest to highest)` of what values[1..n] contains.
function summary(values, n, digits,   form) {
    if (!n) return "-"
    sort(values, n)
    form = "%." digits "f"
    if (n == 1) return sprintf(form, values[1])
    return sprintf(form " (" form " to " form ")", quantile(values, n, 0.5), values[1], values[n])
}

# Collects a column in `values`, in another unit; returns how many there are.
function collect(row, column, unit,   repeat, n) {
    for (repeat = 1; repeat <= repeats; repeat++)
        if ((row, repeat, column) in cell) values[++n] = cell[row, repeat, column] / unit
    return n
}

function absolute(row, column, unit, digits) { return summary(values, collect(row, column, unit), digits) }

# 0 if there is none.
function median(row, column,   n) {
    n = collect(row, column, 1)
    sort(values, n)
    return n ? quantile(values, n, 0.5) : 0
}

# As a share of the column `whole` of another row, in the same repeat.
function share(row, column, base, whole,   repeat, n, all) {
    for (repeat = 1; repeat <= repeats; repeat++) {
        all = (base, repeat, whole) in cell ? cell[base, repeat, whole] : 0
        if (((row, repeat, column) in cell) && all) values[++n] = cell[row, repeat, column] / all
    }
    return summary(values, n, 2)
}
