# Sorting, quantiles and ranges for the tables of experiments; POSIX awk has neither of the first two.

# Sorts values[1..n] in place, by insertion: these are few.
function sort(values, n,   i, j, moved) {
    for (i = 2; i <= n; i++) {
        moved = values[i]
        for (j = i - 1; j >= 1 && values[j] > moved; j--) values[j + 1] = values[j]
        values[j + 1] = moved
    }
}

# The quantile at `share` of values[1..n], which are sorted.
function quantile(values, n, share,   place, low) {
    place = 1 + (n - 1) * share
    low = int(place)
    return values[low] + (place - low) * (values[low + (low < n)] - values[low])
}

# `median (lowest to highest)` of what values[1..n] contains.
function summary(n, digits,   form) {
    if (!n) return "-"
    sort(values, n)
    form = "%." digits "f"
    if (n == 1) return sprintf(form, values[1])
    return sprintf(form " (" form " to " form ")", quantile(values, n, 0.5), values[1], values[n])
}
