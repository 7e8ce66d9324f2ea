
# Names of running objects, which the daemon knows. It prints only names without characters that a
# shell interprets.
_ashlar_live() {
    local cur cword word words kept=()
    _ashlar "$@"
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n : cur words cword
    else
        cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
    fi
    [[ $cur == -* ]] && return 0
    # Placeholders of arguments: <NAME>, [NAMES]...
    for word in "${COMPREPLY[@]}"; do
        [[ $word == [\<\[]* ]] || kept+=("$word")
    done
    local IFS=$'\n'
    COMPREPLY=("${kept[@]}" $(compgen -W "$(command ashlar complete "${words[@]:1:cword-1}" \
        2>/dev/null)" -- "$cur"))
    declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$cur"
    return 0
}

complete -F _ashlar_live -o bashdefault -o default ashlar
