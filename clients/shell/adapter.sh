# lockcheck's client protocol for locks in bash. Copy this file next to your
# adapter, which sources it and ends with `serve`. It needs bash, jq and curl. See
# docs/client-protocol.md.
#
# The adapter sets name, version and capabilities, such as '["wait", "lease"]',
# and has the functions
#
#   lock_open             connect; $urls are the servers, $ttl_ms is the lease to ask for
#   lock_acquire KEY MS   take the lock within MS milliseconds; 0: try once
#   lock_release KEY      give it up
#   lock_renew KEY, lock_check KEY    if capabilities name them
#
# Their status is 0 for yes, 1 for: certainly not, and never will (held by another,
# not held any more); any other status means that nobody knows. $why may say more.
# lock_acquire and lock_renew may set token, lease_ms and valid_ms. What they
# print goes to standard error.
declare -A tokens=()

# The answer is a copy of standard output, which a print by mistake must not reach;
# what they start in the background must not keep it open.
exec {answers}>&1 1>&2

# answer writes the fields that $1, a filter of jq, makes of the variables.
answer() {
	local line
	line=$(jq -cn --argjson id "$id" --arg why "$why" --arg name "$name" --arg version "$version" \
		--argjson can "${capabilities:-[]}" --arg body "$body" \
		--argjson token "${token:-null}" --argjson lease "${lease_ms:-null}" --argjson valid "${valid_ms:-null}" \
		"{id: \$id} + ($1) | with_entries(select(.value != null))") && printf '%s\n' "$line" >&$answers
}

# result answers with what the status of a function says, and the fields of $2 if
# that is yes.
result() {
	case $1 in
	0) answer "{type: \"ok\"} + $2" ;;
	1) why=${why:-no} answer '{type: "fail", error: $why}' ;;
	*) why=${why:-status $1} answer '{type: "info", error: $why}' ;;
	esac
}

# ask has the resource do what the protocol says of writes and reads.
ask() {
	local reply status
	reply=$(curl -s --noproxy '*' --max-time 5 -w '\n%{http_code}' -X "$1" "$2")
	status=$?
	body=${reply%$'\n'*} why="curl $status: ${reply//$'\n'/ }"
	case $status/${reply##*$'\n'} in
	0/200) return 0 ;;
	0/409 | 7/*) return 1 ;; # rejected, or no connection was made
	*) return 2 ;;
	esac
}

can() { jq -e --arg f "$1" 'any(. == $f)' <<<"$capabilities" >/dev/null; }

serve() {
	local line id f wait ttl key url all why body token lease_ms valid_ms urls ttl_ms
	while IFS= read -r line; do
		why='' body='' token='' lease_ms='' valid_ms=''
		# Each on a line of its own, as a JSON string: so a key may be anything.
		{ read -r id; read -r f; read -r wait; read -r ttl; IFS= read -r -d '' key; IFS= read -r -d '' url; IFS= read -r -d '' all; } < <(
			jq -j '"\(.id)\n\(.f)\n\(.wait_ms // 0)\n\(.ttl_ms // 0)\n\(.key // "")\u0000\(.url // "")\u0000\([.servers[]?.url] | join(" "))\u0000"' <<<"$line"
		)
		case $f in
		open)
			urls=$all ttl_ms=$ttl
			lock_open
			result $? '{protocol: 1, name: $name, version: $version, capabilities: $can}'
			;;
		acquire)
			lock_acquire "$key" "$wait"
			set -- $?
			[ "$1" != 0 ] || tokens["=$key"]=$token
			result "$1" '{token: $token, lease_ms: $lease, valid_ms: $valid}'
			;;
		release)
			unset -v "tokens[=\$key]"
			lock_release "$key"
			result $? '{}'
			;;
		renew)
			if can renew; then lock_renew "$key"; else why='cannot renew'; false; fi
			result $? '{token: $token, lease_ms: $lease, valid_ms: $valid}'
			;;
		check)
			if can check; then
				lock_check "$key"
				case $? in
				0) answer '{type: "ok", value: true}' ;;
				1) answer '{type: "ok", value: false}' ;;
				*) result $? '{}' ;;
				esac
			else
				why='cannot check' result 1 '{}'
			fi
			;;
		write)
			token=${tokens["=$key"]}
			ask POST "$url${token:+&token=$token}"
			result $? '{token: $token}'
			;;
		read)
			ask GET "$url"
			result $? '{value: $body}'
			;;
		close)
			result 0 '{}'
			return
			;;
		*) why="cannot $f" result 1 '{}' ;;
		esac
	done
}
