"""Rules of the engine: storage."""

RULES = {
    "lakehouse/engine/store/mounts.py": [
        (
            '            raise Refused(f"store: {name!r} lies in a table that others write; accepted: names in the lake\'s own folders")',
            "            pass",
            ("engine/store/test_mounts.py::test_nothing_is_written_into_it",),
            "nothing is put into a table that others write",
        ),
    ],
    "lakehouse/engine/store/disk.py": [
        (
            "            os.replace(unfinished, path)\n",
            "            path.write_bytes(data)\n",
            ("engine/store/test_store.py::test_who_reads_a_file_that_is_put_anew_reads_the_old_one_whole",),
        ),
        (
            "                os.link(unfinished, path)\n",
            "                os.replace(unfinished, path)\n",
            ("engine/store/test_store.py::test_put_if_absent_writes_once",),
        ),
        (
            "            os.fsync(file.fileno())\n",
            "            pass\n",
            ("engine/store/test_store.py::test_a_disk_write_is_on_the_disk_before_it_has_its_name_and_its_folder_after",),
        ),
        (
            "            os.replace(unfinished, path)\n            _flush_folder(path.parent)",
            "            os.replace(unfinished, path)",
            ("engine/store/test_store.py::test_a_disk_write_is_on_the_disk_before_it_has_its_name_and_its_folder_after",),
        ),
        (
            "                return False\n            _flush_folder(path.parent)",
            "                return False",
            ("engine/store/test_store.py::test_a_disk_write_is_on_the_disk_before_it_has_its_name_and_its_folder_after",),
        ),
        (
            "        private.unlink(missing_ok=True)",
            "        pass",
            ("engine/store/test_store.py::test_a_failing_disk_write_leaves_the_old_content_and_no_rest",),
        ),
        (
            ' if not UNFINISHED.fullmatch(file.name.rpartition("/")[2]))',
            ")",
            (
                "engine/store/test_store.py::test_a_walk_of_a_disk_has_unfinished_writes_and_names_that_are_no_text_and_a_list_has_files_alone",
            ),
        ),
        (
            "        self._check_inside(path.parent)\n",
            "",
            ("engine/store/test_store.py::test_links_out_of_the_root_are_neither_listed_nor_followed",),
        ),
        (
            '        self._check_inside(path)\n        with _translated(path, "read"):',
            '        with _translated(path, "read"):',
            ("engine/store/test_store.py::test_links_out_of_the_root_are_neither_listed_nor_followed",),
        ),
        (
            '        self._check_inside(path)\n        with _translated(path, "list"):\n',
            '        with _translated(path, "list"):\n',
            ("engine/store/test_store.py::test_links_out_of_the_root_are_neither_listed_nor_followed",),
        ),
        (
            "elif entry.is_file(follow_symlinks=False):",
            "elif entry.is_file():",
            ("engine/store/test_store.py::test_links_out_of_the_root_are_neither_listed_nor_followed",),
        ),
        (
            "                        if entry.is_dir(follow_symlinks=False):",
            "                        if entry.is_dir():",
            ("engine/store/test_store.py::test_links_out_of_the_root_are_neither_listed_nor_followed",),
        ),
        (
            "for entry in entries if entry.is_dir(follow_symlinks=False) and",
            "for entry in entries if entry.is_dir() and",
            ("engine/store/test_store.py::test_links_out_of_the_root_are_neither_listed_nor_followed",),
        ),
        (
            "    except OSError as error:\n        return error\n",
            "    except OSError:\n        return None\n",
            ("engine/store/test_store.py::test_what_a_disk_could_not_delete_is_named_and_the_rest_is_gone",),
        ),
    ],
    "lakehouse/engine/store/interface.py": [
        (
            'not {"", ".", ".."}.isdisjoint(name.split("/"))',
            'not {"", "."}.isdisjoint(name.split("/"))',
            ("engine/store/test_store.py::test_names_that_leave_the_root_are_refused",),
        ),
        (
            "return f\"{checked_name(prefix.removesuffix('/'))}/\"",
            "return f\"{checked_name(prefix.removesuffix('/'))}\"",
            ("engine/store/test_store.py::test_a_list_is_sorted_recursive_and_bounded_by_whole_folders",),
        ),
    ],
    "lakehouse/engine/store/s3.py": [
        ('IfNoneMatch="*", ', "", ("engine/store/test_store.py::test_put_if_absent_writes_once",)),
        (
            "        self._check_conditions_are_heeded()\n        with",
            "        with",
            ("engine/store/test_store.py::test_a_server_that_overwrites_what_is_taken_is_refused_before_it_can",),
        ),
        (
            '["Metadata"].get("writer") == writer',
            " is not None",
            ("engine/store/test_store.py::test_a_conditional_write_that_was_tried_again_knows_another_s_work",),
        ),
        (
            'if not answer.get("RetryAttempts"):',
            "if True:",
            ("engine/store/test_store.py::test_a_conditional_write_whose_answer_was_lost_knows_its_own_work",),
        ),
        (
            '            if code == "ConditionalRequestConflict":\n                return None',
            '            if code == "ConditionalRequestConflict":\n                return False',
            ("engine/store/test_store.py::test_a_conflicting_conditional_write_is_tried_again",),
        ),
        (
            '.get("Errors", [])\n',
            '.get("None", [])\n',
            ("engine/store/test_store.py::test_keys_that_s3_fails_to_delete_are_asked_again_and_the_rest_is_named",),
        ),
        (
            "if strangers := failed.keys() - set(pending):",
            "if strangers := set[str]():",
            ("engine/store/test_store.py::test_an_answer_about_a_key_that_was_not_asked_about_deletes_nothing_else",),
        ),
        (
            "            final |= {key: code for key, code in failed.items() if code not in _PASSING}\n",
            "",
            ("engine/store/test_store.py::test_keys_that_s3_fails_to_delete_are_asked_again_and_the_rest_is_named",),
        ),
    ],
    "lakehouse/engine/store/s3_walk.py": [
        (
            "    if keys and (keys[0] <= after or keys[0] > keys[-1]):",
            "    if False:",
            ("engine/store/test_s3_walk.py::test_a_server_that_lists_in_no_order_is_refused",),
        ),
        ("(self.upto is None or key <= self.upto)", "True", ("engine/store/test_s3_walk.py::test_every_key_is_listed_once",)),
        (
            "(self.upto is None or key <= self.upto)",
            "(self.upto is None or key < self.upto)",
            ("engine/store/test_s3_walk.py::test_every_key_is_listed_once",),
        ),
        ("or len(entries) < len(listed):", "or entries:", ("engine/store/test_s3_walk.py::test_every_key_is_listed_once",)),
    ],
}
