#!/bin/bash
# Tests `etcdctl lock`: a process that holds the lock for as long as it lives.
# It needs bash, jq, curl and etcdctl.
export ETCDCTL_API=3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
holder='' token='' key=''

# jq has ended before its line is written: nothing is left to be frozen but what
# holds the lock.
line() { local l; l=$(jq -cn "$@") && printf '%s\n' "$l"; }
answer() { line --argjson id "$id" "{id: \$id} + $1"; }
say() { line --argjson id "$id" --arg type "$1" --arg error "$2" '{id: $id, type: $type, error: $error}'; }

# hold runs etcdctl in the background, and gives notice if it ends by itself.
hold() {
	etcdctl --endpoints "$endpoints" -w fields lock --ttl "$ttl" "$key" >"$dir/out" &
	echo $! >"$dir/pid"
	wait $!
	[ ! -e "$dir/held" ] || line --arg key "$key" '{f: "lost", key: $key}'
	rm -f "$dir/held"
}

# acquire waits until etcdctl says that it holds, for $1 milliseconds. It cannot
# try just once: for half a second it waits in any case.
acquire() {
	rm -f "$dir"/*
	mkfifo "$dir/out"
	hold &
	holder=$!
	exec 4<>"$dir/out" # both ways, so that opening does not wait
	local wait=$(( $1 > 500 ? $1 : 500 )) name value
	local end=$(( $(date +%s%3N) + wait ))
	token=''
	while left=$(( end - $(date +%s%3N) )); [ "$left" -gt 0 ]; do
		IFS=' :' read -r -t "$(printf '%d.%03d' $(( left / 1000 )) $(( left % 1000 )))" name value <&4 || break
		[ "$name" != '"CreateRevision"' ] || token=$value
		if [ "$name" = '"Count"' ]; then
			: >"$dir/held"
			answer "{type: \"ok\", token: $token, lease_ms: $(( ttl * 1000 ))}"
			return
		fi
	done
	finish && say fail 'held by another' || say info 'etcdctl did not end in order'
}

# finish has etcdctl give up the lock, or its place in the queue.
finish() {
	rm -f "$dir/held"
	kill -INT "$(cat "$dir/pid")" 2>/dev/null || return 1
	wait "$holder"
	token=''
}

while IFS= read -r line; do
	IFS=$'\t' read -r id f wait ttl_ms < <(jq -r '[.id, .f, .wait_ms // 0, .ttl_ms // 0] | @tsv' <<<"$line")
	url=$(jq -r '.url // empty' <<<"$line")
	case $f in
	open)
		endpoints=$(jq -r '[.servers[].url] | join(",")' <<<"$line")
		ttl=$(( (ttl_ms + 999) / 1000 ))
		version=$(etcdctl version | sed -n 's/etcdctl version: //p')
		answer "{type: \"ok\", protocol: 1, name: \"etcdctl lock\", version: \"$version\", capabilities: [\"wait\", \"token\", \"lease\", \"lost\"]}"
		;;
	acquire)
		key=$(jq -r .key <<<"$line")
		acquire "$wait"
		;;
	release)
		if [ -e "$dir/held" ] && finish; then answer '{type: "ok"}'; else say fail 'not held'; fi
		;;
	write)
		[ -z "$token" ] || url="$url&token=$token"
		status=$(curl -s -X POST -o "$dir/body" -w '%{http_code}' --max-time 5 "$url")
		result=$?
		case $result/$status in
		0/200) answer "{type: \"ok\"${token:+, token: $token}}" ;;
		0/409) say fail "$(cat "$dir/body")" ;;
		7/*) say fail 'no connection to the resource' ;;
		*) say info "curl $result, status $status" ;;
		esac
		;;
	read)
		if body=$(curl -sf --max-time 5 "$url" && echo .); then
			line --argjson id "$id" --arg value "${body%.}" '{id: $id, type: "ok", value: $value}'
		else
			say info 'the resource did not answer'
		fi
		;;
	close)
		answer '{type: "ok"}'
		break
		;;
	*)
		say fail "cannot $f"
		;;
	esac
done
# Whoever closes while it holds is gone, and its lease ends by itself.
[ -e "$dir/pid" ] && rm -f "$dir/held" && kill -KILL "$(cat "$dir/pid")" 2>/dev/null
exit 0
