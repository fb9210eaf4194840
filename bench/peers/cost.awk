# The typical cost of primitive `id` in the CSV of `assay bench`, or nothing: the table of costs has it in the second
# column; an id with a comma is quoted.

{ gsub(/["\r]/, "") }
/^primitive,/ { is_cost = 1; next }
$0 == "" { is_cost = 0 }
is_cost && index($0, id ",") == 1 { split(substr($0, length(id) + 2), value, ","); print value[1]; exit }
